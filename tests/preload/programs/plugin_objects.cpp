// A plugin: objects are made by threads of its own, and remembered in static data until it is closed.
#include "plugin_objects.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>

namespace
{

std::map<int, std::string> remembered; // its destructor runs when the plugin is closed

void make_names(std::vector<std::string> *names, int round)
{
    std::vector<std::string> own;
    for (int i = 0; i < 500; i++) {
        own.push_back("name " + std::to_string(i * round) + std::string(static_cast<std::size_t>(i % 90), 'x'));
        try {
            if (i % 100 == 0) throw std::runtime_error(own.back());
        } catch (const std::runtime_error &error) {
            names->push_back(error.what());
        }
    }
    names->insert(names->end(), own.begin(), own.end());
}

} // namespace

extern "C" Objects make_objects(int round)
{
    Objects objects{new std::vector<std::string>, nullptr, static_cast<std::size_t>(round % 7 * 30000 + 10)};
    std::thread(make_names, objects.names, round).join();
    remembered[round] = objects.names->back();
    objects.raw = static_cast<unsigned char *>(std::malloc(objects.raw_size));
    std::memset(objects.raw, round, objects.raw_size);
    return objects;
}
