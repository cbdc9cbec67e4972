// Ads out of random numbers.
#include "ads.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "random.hpp"

namespace
{

// What an ad takes, its places in the lists of its keywords included; the first measured with glibc's malloc.
constexpr std::size_t ad_size = 540 + feature_count * sizeof(std::int16_t);
constexpr std::size_t ads_least = 1024;
constexpr std::size_t ads_for_a_keyword = 64; // of a vocabulary; six keywords an ad make lists of 384
constexpr std::size_t keywords_of_an_ad = 6;

constexpr std::array<std::string_view, 16> words = {"fresh",   "tickets", "to",    "the",  "coast", "for",
                                                    "winter",  "shoes",   "and",   "free", "of",    "delivery",
                                                    "tonight", "garden",  "tools", "at"};

std::string some_words(random_numbers &random, std::size_t count)
{
    std::string text;
    for (std::size_t i = 0; i < count; i++) {
        if (i > 0) text += ' ';
        text += words[random.below(words.size())];
    }
    return text;
}

std::unique_ptr<const ad> make_ad(std::size_t number, std::size_t vocabulary)
{
    random_numbers random(number);
    auto made = std::make_unique<ad>();
    made->title = some_words(random, 4 + random.below(4));
    made->text = some_words(random, 8 + random.below(16));
    made->url = "https://shop-" + std::to_string(random.below(100000)) + ".example/offers/" + std::to_string(number);
    for (std::size_t i = 0; i < keywords_of_an_ad; i++)
        made->keywords.push_back(static_cast<std::uint32_t>(random.below(vocabulary)));
    made->bid = static_cast<std::uint32_t>(1000 + random.below(100000));
    made->budget = 1000000 + random.below(1000000000);
    return made;
}

// Eight of a random number's bytes at a time.
void make_features(std::vector<std::int16_t> &features)
{
    random_numbers random(features.size());
    for (std::size_t i = 0; i < features.size(); i += 8) {
        const std::uint64_t bytes = random.next();
        for (std::size_t j = 0; j < 8; j++) features[i + j] = static_cast<std::int16_t>(bytes >> (8 * j) & 0xff);
    }
}

} // namespace

ad_index::ad_index(std::size_t bytes)
{
    const std::size_t count = std::max(ads_least, bytes / ad_size);
    by_keyword_.resize(count / ads_for_a_keyword);
    for (std::size_t number = 0; number < count; number++) {
        ads_.push_back(make_ad(number, by_keyword_.size()));
        for (const auto keyword : ads_.back()->keywords) {
            auto &listed = by_keyword_[keyword];
            if (listed.empty() || listed.back() != number) listed.push_back(static_cast<std::uint32_t>(number));
        }
    }
    features_.resize(count * feature_count);
    make_features(features_);
}
