// Products put together from words by a generator with a fixed seed.
#include "catalogue.hpp"

#include <array>
#include <random>

std::vector<product> make_catalogue()
{
    constexpr int products = 500, words_in_description = 12, tags = 4;
    constexpr std::int64_t cents_least = 150, cents_span = 9000;
    constexpr std::array categories{"tea", "coffee", "spices", "chocolate"};
    constexpr std::array words{"amber", "bitter",   "black", "bold",   "bright", "dark",   "dry",     "earthy",
                               "fine",  "floral",   "fresh", "gentle", "green",  "hill",   "honey",   "island",
                               "light", "malty",    "mild",  "old",    "ripe",   "river",  "roasted", "smoky",
                               "soft",  "southern", "sweet", "tangy",  "velvet", "<wild>", "winter",  "young & strong"};
    std::minstd_rand random; // the standard says what it yields; of distributions it does not
    const auto pick = [&](const auto &list) { return std::string(list[random() % list.size()]); };

    std::vector<product> all;
    for (int id = 0; id < products; id++) {
        product made{id, "", pick(categories), "", {}, 0};
        made.name = pick(words) + " " + pick(words) + " " + made.category + " no. " + std::to_string(id);
        for (int i = 0; i < words_in_description; i++) made.description += (i == 0 ? "" : " ") + pick(words);
        for (int i = 0; i < tags; i++) made.tags.push_back(pick(words));
        made.cents = cents_least + static_cast<std::int64_t>(random() % cents_span);
        all.push_back(std::move(made));
    }
    return all;
}
