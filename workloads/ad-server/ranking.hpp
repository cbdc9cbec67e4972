// A request for ads, and everything that it makes on the way to its answer: many objects in a row, of a few bytes to
// several megabytes, and none that outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ads.hpp"
#include "http.hpp"

struct candidate {
    std::uint32_t number = 0; // of the ad
    std::int64_t score = 0;
    std::string key;
    std::vector<std::int32_t> terms; // what the score is made of
};

// The objects of one request. Destroyed, they are freed in a row.
struct work {
    http::parameters parameters{std::pmr::new_delete_resource()};
    std::vector<std::uint32_t> found;
    std::vector<std::unique_ptr<candidate>> candidates;
    std::vector<std::int32_t> features;  // a row for each candidate
    std::vector<std::int64_t> products;  // likewise
    std::string trace;                   // a line for each candidate
    std::vector<const candidate *> best; // first the best
    http::response answer{std::pmr::new_delete_resource()};
    std::pmr::string bytes{std::pmr::new_delete_resource()}; // the answer as it is sent
};

// What a candidate takes in all of `work`, about: so many bytes of heap are asked for by asking for that many times fewer.
constexpr std::size_t candidate_size = 760;

// Fills in the answer:
//
//   /ads?user=U&words=A+B&limit=N       the best of N ads with these keywords
//   /forecast?user=U&from=N&count=M     the best of M ads, from the Nth on: what a campaign would meet. Large.
void answer(const ad_index &ads, const http::request &asked, work &to);
