// The three routes. Each is written as one would write it with std::string and std::vector.
#include "shop.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "json.hpp"
#include "page.hpp"

namespace
{

using resource = std::pmr::memory_resource *;
using namespace std::string_view_literals;

constexpr auto product_prefix = "/products/"sv;
constexpr std::size_t products_on_page = 20, similar_shown = 5;
constexpr std::int64_t count_max = 1000, discount_from = 10; // pieces
constexpr std::int64_t discount_percent = 5, coupon_percent = 10;

constexpr auto list_template = R"(<!DOCTYPE html>
<html><head><title>{{title}}</title></head><body>
<h1>{{title}}</h1>
<p>{{found}} products, page {{page}}</p>
<ul>
{{#rows}}<li><a href="/products/{{id}}">{{name}}</a> <b>{{price}}</b> <i>{{description}}</i></li>
{{/rows}}</ul>
</body></html>
)"sv;

http::response error(int status, std::string_view message, resource memory)
{
    http::response answer(memory);
    answer.status = status;
    answer.body.append(message).append("\n");
    return answer;
}

std::optional<std::int64_t> number(std::string_view text)
{
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::pmr::string text_of(std::int64_t value, resource memory)
{
    char digits[std::numeric_limits<std::int64_t>::digits10 + 3];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
    return std::pmr::string(digits, static_cast<std::size_t>(end - digits), memory);
}

// 1234 as 12.34
std::pmr::string price_of(std::int64_t cents, resource memory)
{
    std::pmr::string text = text_of(cents / 100, memory);
    text += '.';
    text += static_cast<char>('0' + cents / 10 % 10);
    text += static_cast<char>('0' + cents % 10);
    return text;
}

std::pmr::vector<std::pmr::string> words_of(std::string_view text, resource memory)
{
    std::pmr::vector<std::pmr::string> words(memory);
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(' '), text.size());
        if (end > 0) words.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return words;
}

// Whether the description has all of `wanted`.
bool has_words(const product &each, const std::pmr::vector<std::pmr::string> &wanted, resource memory)
{
    if (wanted.empty()) return true;
    const auto words = words_of(each.description, memory);
    const std::pmr::unordered_set<std::pmr::string> present(words.begin(), words.end(), words.size(), memory);
    return std::all_of(wanted.begin(), wanted.end(), [&](const auto &word) { return present.count(word) != 0; });
}

page::values row_of(const product &each, resource memory)
{
    page::values row(memory);
    row.emplace("id", text_of(each.id, memory));
    row.emplace("name", each.name);
    row.emplace("price", price_of(each.cents, memory));
    row.emplace("description", each.description);
    return row;
}

void append_product(std::pmr::string &to, const product &each, resource memory)
{
    to.append("{\"id\":").append(text_of(each.id, memory)).append(",\"name\":");
    json::append_string(to, each.name);
    to.append(",\"category\":");
    json::append_string(to, each.category);
    to.append(",\"cents\":").append(text_of(each.cents, memory)).append(",\"tags\":[");
    for (std::size_t i = 0; i < each.tags.size(); i++) {
        if (i > 0) to += ',';
        json::append_string(to, each.tags[i]);
    }
    to.append("]");
}

} // namespace

http::response shop::answer(const http::request &request, resource memory) const
{
    const bool get = request.method == "GET";
    if (request.path == "/products") return get ? list(request, memory) : error(405, "only GET", memory);
    if (request.path == "/quote")
        return request.method == "POST" ? quote(request, memory) : error(405, "only POST", memory);
    if (request.path.substr(0, product_prefix.size()) == product_prefix)
        return get ? show(request.path.substr(product_prefix.size()), memory) : error(405, "only GET", memory);
    return error(404, "no such page", memory);
}

const product *shop::find(std::int64_t id) const
{
    return id >= 0 && static_cast<std::size_t>(id) < products_.size() ? &products_[static_cast<std::size_t>(id)]
                                                                      : nullptr;
}

http::response shop::list(const http::request &request, resource memory) const
{
    const auto query = http::parse_query(request.query, memory);
    const auto category = http::find(query, "category");
    const auto wanted = words_of(http::find(query, "words"), memory);
    const auto most = number(http::find(query, "most")).value_or(std::numeric_limits<std::int64_t>::max());

    std::pmr::vector<const product *> fit(memory);
    for (const product &each : products_)
        if ((category.empty() || each.category == category) && each.cents <= most && has_words(each, wanted, memory))
            fit.push_back(&each);
    if (http::find(query, "sort") == "price")
        std::sort(fit.begin(), fit.end(),
                  [](auto a, auto b) { return std::tie(a->cents, a->id) < std::tie(b->cents, b->id); });

    const std::size_t pages = fit.size() / products_on_page + 1;
    const auto asked = number(http::find(query, "page")).value_or(1);
    const std::size_t shown =
        std::clamp<std::size_t>(static_cast<std::size_t>(std::max<std::int64_t>(asked, 1)), 1, pages);
    const std::size_t first = (shown - 1) * products_on_page;
    std::pmr::vector<page::values> rows(memory);
    for (std::size_t i = first; i < std::min(first + products_on_page, fit.size()); i++)
        rows.push_back(row_of(*fit[i], memory));

    page::values all(memory);
    all.emplace("title", category.empty() ? "all products"sv : category);
    all.emplace("found", text_of(static_cast<std::int64_t>(fit.size()), memory));
    all.emplace("page", text_of(static_cast<std::int64_t>(shown), memory));
    http::response answer(memory);
    answer.type = "text/html; charset=utf-8";
    answer.body = page::render(list_template, all, rows, memory);
    return answer;
}

http::response shop::show(std::string_view id, resource memory) const
{
    const auto wanted = number(id);
    const product *shown = wanted ? find(*wanted) : nullptr;
    if (shown == nullptr) return error(404, "no such product", memory);

    // Products that share tags, those with most of them first.
    std::pmr::unordered_map<std::pmr::string, int> tags(memory);
    for (const auto &tag : shown->tags) tags[std::pmr::string(tag, memory)]++;
    std::pmr::vector<std::pair<int, const product *>> similar(memory);
    for (const product &each : products_) {
        int shared = 0;
        for (const auto &tag : each.tags) shared += static_cast<int>(tags.count(std::pmr::string(tag, memory)));
        if (shared > 0 && each.id != shown->id) similar.emplace_back(shared, &each);
    }
    std::sort(similar.begin(), similar.end(), [](const auto &a, const auto &b) {
        return std::tie(b.first, a.second->id) < std::tie(a.first, b.second->id);
    });

    http::response answer(memory);
    answer.type = "application/json";
    append_product(answer.body, *shown, memory);
    answer.body.append(",\"similar\":[");
    for (std::size_t i = 0; i < std::min(similar_shown, similar.size()); i++) {
        if (i > 0) answer.body += ',';
        append_product(answer.body, *similar[i].second, memory);
        answer.body += '}';
    }
    answer.body.append("]}\n");
    return answer;
}

http::response shop::quote(const http::request &request, resource memory) const
{
    const auto order = json::parse(request.body, memory);
    if (!order) return error(400, "the body is not JSON", memory);
    const auto *items = order->find("items");
    if (items == nullptr || items->as<json::array>() == nullptr) return error(400, "\"items\" is missing", memory);

    std::int64_t total = 0;
    http::response answer(memory);
    answer.type = "application/json";
    answer.body = "{\"lines\":[";
    for (const json::value &item : *items->as<json::array>()) {
        const auto *id = item.find("id"), *count = item.find("count");
        const auto *which = id == nullptr ? nullptr : id->as<std::int64_t>();
        const auto *pieces = count == nullptr ? nullptr : count->as<std::int64_t>();
        if (which == nullptr || pieces == nullptr) return error(400, "an item needs \"id\" and \"count\"", memory);
        const product *ordered = find(*which);
        if (ordered == nullptr) return error(400, "no such product", memory);
        if (*pieces < 1 || *pieces > count_max) return error(400, "\"count\" is out of range", memory);

        std::int64_t cents = ordered->cents * *pieces;
        if (*pieces >= discount_from) cents -= cents * discount_percent / 100;
        if (total > 0) answer.body += ',';
        append_product(answer.body, *ordered, memory);
        answer.body.append(",\"count\":").append(text_of(*pieces, memory));
        answer.body.append(",\"sum\":").append(text_of(cents, memory)).append("}");
        total += cents;
    }
    const auto *coupon = order->find("coupon");
    const auto *code = coupon == nullptr ? nullptr : coupon->as<std::pmr::string>();
    if (code != nullptr && *code == "WINTER") total -= total * coupon_percent / 100;
    answer.body.append("],\"total\":").append(text_of(total, memory)).append("}\n");
    return answer;
}
