// An example of docs/characterise.md: a service that reads a catalogue once and stays large.
//
//     g++ -g -O1 -o catalogue catalogue.cpp && ./catalogue

#include <chrono>
#include <string>
#include <thread>
#include <vector>

class Catalogue
{
  public:
    void import(int items)
    {
        std::vector<std::string> rows;
        for (int item = 0; item < items; item++) {
            rows.push_back(read(item));
            index_.push_back(title(rows.back()));
        }
    } // The rows are freed here; the titles stay.

    std::string find(int item) const
    {
        return "found: " + index_.at(item);
    }

  private:
    std::vector<std::string> index_;

    static std::string read(int item)
    {
        return "item " + std::to_string(item) + " of the catalogue" + std::string(1000, '.');
    }

    static std::string title(const std::string &row)
    {
        return row.substr(0, 24);
    }
};

int main()
{
    Catalogue catalogue;
    catalogue.import(100'000);
    for (int item = 0;; item = (item + 1) % 100'000) {
        catalogue.find(item);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}
