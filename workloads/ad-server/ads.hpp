// The ads and where to find them: keyword, list of ads, ad; and what is known of each for scoring, in one table. Built once,
// then only read, but for the counts of what was shown.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

constexpr std::size_t feature_count = 384;

// Every text and list of an ad is an allocation of its own, as where an index is filled from a data base.
struct ad {
    std::string title, text, url;
    std::vector<std::uint32_t> keywords;
    std::uint32_t bid = 0;
    std::uint64_t budget = 0;
    mutable std::atomic<std::uint64_t> spent = 0; // no answer depends on it
};

class ad_index
{
  public:
    // As many ads as fit into so many bytes, at least a few. They are the same every time.
    explicit ad_index(std::size_t bytes);

    std::size_t size() const
    {
        return ads_.size();
    }
    const ad &operator[](std::uint32_t number) const
    {
        return *ads_[number];
    }
    // feature_count numbers, 0 to 255.
    const std::int16_t *features(std::uint32_t number) const
    {
        return features_.data() + number * feature_count;
    }
    std::size_t keywords() const
    {
        return by_keyword_.size();
    }
    const std::vector<std::uint32_t> &with(std::size_t keyword) const
    {
        return by_keyword_[keyword];
    }

  private:
    std::vector<std::unique_ptr<const ad>> ads_;
    std::vector<std::vector<std::uint32_t>> by_keyword_;
    std::vector<std::int16_t> features_; // more than half of all: one block
};
