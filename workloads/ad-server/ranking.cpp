// Look up, gather features, score, rank, render.
#include "ranking.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "random.hpp"

namespace
{

constexpr std::size_t shown_count = 20;   // ads of an answer
constexpr std::size_t columns = 64;       // of a candidate's terms beside the user's tastes
constexpr std::size_t product_count = 16; // of these, in groups
constexpr std::size_t term_count = 24;
constexpr std::size_t taste_count = 16;

using profile = std::array<std::int32_t, taste_count>;

std::uint64_t number(std::string_view text, std::uint64_t otherwise)
{
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

profile profile_of(std::uint64_t user)
{
    random_numbers random(user);
    profile tastes;
    for (auto &taste : tastes) taste = static_cast<std::int32_t>(random.below(256));
    return tastes;
}

// The ads with any of the keywords, in the order of the question, until there are enough.
void find_by_words(const ad_index &ads, work &to, std::size_t limit)
{
    std::string_view words = http::find(to.parameters, "words");
    while (!words.empty() && to.found.size() < limit) {
        const std::size_t end = std::min(words.find(' '), words.size());
        const auto &listed = ads.with(number(words.substr(0, end), 0) % ads.keywords());
        to.found.insert(to.found.end(), listed.begin(), listed.end());
        words.remove_prefix(std::min(end + 1, words.size()));
    }
    to.found.resize(std::min(to.found.size(), limit));
}

void find_by_place(const ad_index &ads, work &to, std::uint64_t from, std::size_t count)
{
    for (std::size_t i = 0; i < count; i++) to.found.push_back(static_cast<std::uint32_t>((from + i) % ads.size()));
}

// How an ad suits a user: below 2^25.
std::int32_t affinity(const std::int16_t *features, const profile &tastes)
{
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < feature_count; i++) sum += features[i] * tastes[i % taste_count];
    return sum;
}

void make_candidates(const ad_index &ads, const profile &tastes, work &to)
{
    for (const auto number : to.found) {
        const ad &of = ads[number];
        const std::int16_t *const features = ads.features(number);
        auto made = std::make_unique<candidate>();
        made->number = number;
        made->key = "candidate/" + std::to_string(number) + "/bid/" + std::to_string(of.bid) + "/for-this-request";
        made->score = of.bid + affinity(features, tastes);
        made->terms.assign(features, features + term_count);
        to.candidates.push_back(std::move(made));
    }
}

void gather(const profile &tastes, work &to)
{
    to.features.resize(to.candidates.size() * columns);
    auto *row = to.features.data();
    for (const auto &each : to.candidates) {
        for (std::size_t i = 0; i < columns; i++)
            row[i] = each->terms[i % term_count] * tastes[i % taste_count] + static_cast<std::int32_t>(i);
        row += columns;
    }
}

void multiply(work &to)
{
    constexpr std::size_t width = columns / product_count;
    to.products.resize(to.candidates.size() * product_count);
    for (std::size_t i = 0; i < to.products.size(); i++)
        for (std::size_t j = 0; j < width; j++)
            to.products[i] += to.features[i * width + j] * static_cast<std::int64_t>(i % product_count + 1);
}

void score(work &to)
{
    const auto *row = to.products.data();
    for (const auto &each : to.candidates) {
        for (std::size_t i = 0; i < product_count; i++) each->score += row[i];
        row += product_count;
        to.trace += each->key;
        to.trace += ' ';
        to.trace += std::to_string(each->score);
        to.trace += '\n';
    }
}

void rank(work &to)
{
    for (const auto &each : to.candidates) to.best.push_back(each.get());
    const std::size_t count = std::min(shown_count, to.best.size());
    const auto better = [](const candidate *left, const candidate *right) {
        return left->score != right->score ? left->score > right->score : left->number < right->number;
    };
    std::partial_sort(to.best.begin(), to.best.begin() + static_cast<std::ptrdiff_t>(count), to.best.end(), better);
    to.best.resize(count);
}

// FNV-1a: a wrong byte in any object of the request makes another answer.
std::uint64_t digest(std::string_view text)
{
    std::uint64_t sum = 0xcbf29ce484222325;
    for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return sum;
}

void render(const ad_index &ads, work &to)
{
    to.answer.type = "application/json";
    auto &json = to.answer.body;
    json.append("{\"candidates\": ").append(std::to_string(to.candidates.size()));
    json.append(", \"digest\": \"").append(std::to_string(digest(to.trace))).append("\", \"ads\": [");
    for (const auto *each : to.best) {
        const ad &shown = ads[each->number];
        shown.spent.fetch_add(shown.bid, std::memory_order_relaxed); // a sum, read by nobody before the end
        if (each != to.best.front()) json.append(", ");
        json.append("{\"id\": ").append(std::to_string(each->number));
        json.append(", \"score\": ").append(std::to_string(each->score));
        json.append(", \"title\": \"").append(shown.title);
        json.append("\", \"text\": \"").append(shown.text);
        json.append("\", \"url\": \"").append(shown.url).append("\"}");
    }
    json.append("]}\n");
}

} // namespace

void answer(const ad_index &ads, const http::request &asked, work &to)
{
    to.parameters = http::parse_query(asked.query, std::pmr::new_delete_resource());
    const auto parameter = [&](std::string_view name, std::uint64_t otherwise) {
        return number(http::find(to.parameters, name), otherwise);
    };
    if (asked.path == "/ads") find_by_words(ads, to, parameter("limit", 100));
    else if (asked.path == "/forecast")
        find_by_place(ads, to, parameter("from", 0), std::min<std::uint64_t>(parameter("count", 1000), ads.size()));
    else {
        to.answer.status = 404;
        return;
    }
    const profile tastes = profile_of(parameter("user", 0));
    make_candidates(ads, tastes, to);
    gather(tastes, to);
    multiply(to);
    score(to);
    rank(to);
    render(ads, to);
}
