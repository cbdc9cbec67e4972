// What clang compiles: the standard library, and templates that are used with a hundred types.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <ranges>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct record {
    std::map<std::string, std::vector<std::variant<int, std::string, double>>> fields;
    std::unordered_map<int, std::function<int(int)>> functions;

    int sum(int from)
    {
        functions[N] = [this](int n) { return n + static_cast<int>(fields.size()) + N; };
        for (auto &[name, values] : fields)
            std::sort(values.begin(), values.end(), [](const auto &a, const auto &b) { return a.index() < b.index(); });
        return functions[N](from);
    }
};

template <int... N> int all(std::integer_sequence<int, N...>)
{
    return (record<N>{}.sum(N) + ...);
}

int main()
{
    std::regex pattern("a+b");
    return all(std::make_integer_sequence<int, 24>{}) + std::regex_match("aab", pattern);
}
