// The translation unit of `cc1plus`: a ledger that parses, checks, sorts and prints bookings.
//
// It is an ordinary program (it compiles, links and runs), written the way much of today's C++ is:
// a few hundred lines of its own over heavy standard headers, with variants, ranges, containers of
// containers, tuples and compile-time tables. For the compiler that means hundreds of thousands of
// declarations and instantiations.

#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <ranges>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace ledger {

// ---- Money, with the currency in its type ----

enum class Currency { euro, dollar, pound, yen };

template <Currency C>
struct Money {
  static constexpr Currency currency = C;
  long cents = 0;

  constexpr auto operator<=>(const Money&) const = default;
  constexpr Money operator+(Money other) const { return {cents + other.cents}; }
  constexpr Money operator-() const { return {-cents}; }
};

template <Currency... Cs>
using AnyMoneyOf = std::variant<Money<Cs>...>;
using AnyMoney = AnyMoneyOf<Currency::euro, Currency::dollar, Currency::pound, Currency::yen>;

constexpr std::array<std::pair<std::string_view, Currency>, 4> currency_names{{
    {"EUR", Currency::euro},
    {"USD", Currency::dollar},
    {"GBP", Currency::pound},
    {"JPY", Currency::yen},
}};

template <std::size_t... Is>
std::optional<AnyMoney> money_of(std::string_view name, long cents, std::index_sequence<Is...>) {
  std::optional<AnyMoney> found;
  const auto try_one = [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
    if (currency_names[I].first == name) found = Money<currency_names[I].second>{cents};
  };
  (try_one(std::integral_constant<std::size_t, Is>{}), ...);
  return found;
}

std::optional<AnyMoney> money_of(std::string_view name, long cents) {
  return money_of(name, cents, std::make_index_sequence<currency_names.size()>{});
}

// ---- Bookings: what a line of the ledger can be ----

struct Deposit {
  std::string account;
  AnyMoney amount;
};

struct Transfer {
  std::string from, to;
  AnyMoney amount;
};

struct Remark {
  std::string text;
};

using Booking = std::variant<Deposit, Transfer, Remark>;

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// Reads "12.50 EUR".
std::optional<AnyMoney> parse_money(std::istream& words) {
  long whole = 0, cents = 0;
  char point = 0;
  std::string name;
  if (!(words >> whole >> point >> cents >> name) || point != '.') return std::nullopt;
  return money_of(name, whole * 100 + cents);
}

std::optional<Booking> parse(const std::string& line) {
  std::istringstream words(line);
  std::string kind, from, arrow, to;
  words >> kind;
  if (kind == "#") {
    std::string text;
    std::getline(words >> std::ws, text);
    return Remark{std::move(text)};
  }
  if (kind == "deposit" && words >> to) {
    if (const auto amount = parse_money(words)) return Deposit{to, *amount};
  } else if (kind == "transfer" && words >> from >> arrow >> to && arrow == "->") {
    if (const auto amount = parse_money(words)) return Transfer{from, to, *amount};
  }
  return std::nullopt;
}

// ---- Balances: per account and currency ----

class Balances {
 public:
  void apply(const Booking& booking) {
    std::visit(Overloaded{
                   [this](const Deposit& d) { add(d.account, d.amount, 1); },
                   [this](const Transfer& t) {
                     add(t.from, t.amount, -1);
                     add(t.to, t.amount, 1);
                   },
                   [this](const Remark& r) { remarks_.insert(r.text); },
               },
               booking);
  }

  [[nodiscard]] auto sorted() const {
    std::vector<std::tuple<std::string, Currency, long>> rows;
    for (const auto& [account, purse] : purses_)
      for (const auto& [currency, cents] : purse) rows.emplace_back(account, currency, cents);
    std::ranges::sort(rows, std::greater{}, [](const auto& row) {
      return std::tuple(std::get<2>(row), std::get<0>(row));
    });
    return rows;
  }

  [[nodiscard]] long total(Currency currency) const {
    auto cents = purses_ | std::views::values | std::views::transform([currency](const auto& purse) {
                   const auto found = purse.find(currency);
                   return found == purse.end() ? 0L : found->second;
                 }) |
                 std::views::common;
    return std::accumulate(cents.begin(), cents.end(), 0L);
  }

  [[nodiscard]] const std::set<std::string, std::less<>>& remarks() const { return remarks_; }

 private:
  void add(const std::string& account, const AnyMoney& amount, int sign) {
    std::visit(
        [&]<Currency C>(const Money<C>& money) { purses_[account][C] += sign * money.cents; },
        amount);
  }

  std::unordered_map<std::string, std::map<Currency, long>> purses_;
  std::set<std::string, std::less<>> remarks_;
};

// ---- A small library of combinators, instantiated with many types ----

template <typename T, typename... Steps>
auto pipeline(T value, Steps&&... steps) {
  if constexpr (sizeof...(Steps) == 0) {
    return value;
  } else {
    return [&]<typename First, typename... Rest>(First&& first, Rest&&... rest) {
      return pipeline(std::invoke(std::forward<First>(first), std::move(value)),
                      std::forward<Rest>(rest)...);
    }(std::forward<Steps>(steps)...);
  }
}

template <typename Key>
std::map<Key, std::vector<std::string>> grouped(const std::vector<std::string>& words,
                                                std::function<Key(const std::string&)> key) {
  std::map<Key, std::vector<std::string>> groups;
  for (const auto& word : words) groups[key(word)].push_back(word);
  for (auto& [name, members] : groups) {
    std::stable_sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
  }
  return groups;
}

template <int N>
struct Polynomial {
  std::array<double, N + 1> coefficients{};

  constexpr double operator()(double x) const {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      double sum = 0;
      ((sum = sum * x + coefficients[N - Is]), ...);
      return sum;
    }(std::make_index_sequence<N + 1>{});
  }

  constexpr auto derivative() const {
    Polynomial<(N > 0 ? N - 1 : 0)> result;
    for (int power = 1; power <= N; ++power)
      result.coefficients[power - 1] = power * coefficients[power];
    return result;
  }
};

template <int N>
constexpr double derivatives_at(const Polynomial<N>& polynomial, double x) {
  if constexpr (N == 0) {
    return polynomial(x);
  } else {
    return polynomial(x) + derivatives_at(polynomial.derivative(), x);
  }
}

constexpr auto table = [] {
  Polynomial<40> polynomial;
  for (int power = 0; power <= 40; ++power) polynomial.coefficients[power] = 1.0 / (power + 1);
  return polynomial;
}();
static_assert(derivatives_at(table, 0.0) > 1.0);

// ---- Lines to read: made with a fixed seed ----

std::vector<std::string> made_lines(unsigned seed, int count) {
  std::mt19937 chance(seed);
  std::uniform_int_distribution<int> account(1, 9), euros(1, 999), kind(0, 9);
  std::vector<std::string> lines;
  for (int number = 0; number < count; ++number) {
    std::ostringstream line;
    const auto* name = currency_names[static_cast<std::size_t>(number) % 4].first.data();
    switch (kind(chance)) {
      case 0: line << "# remark " << number % 17; break;
      case 1: case 2: case 3:
        line << "deposit account" << account(chance) << ' ' << euros(chance) << ".50 " << name;
        break;
      default:
        line << "transfer account" << account(chance) << " -> account" << account(chance) << ' '
             << euros(chance) << ".25 " << name;
    }
    lines.push_back(line.str());
  }
  return lines;
}

}  // namespace ledger

int main() {
  using namespace ledger;
  Balances balances;
  std::vector<std::string> words;
  for (unsigned seed = 1; seed <= 4; ++seed)
    for (const auto& line : made_lines(seed, 500)) {
      if (const auto booking = parse(line)) balances.apply(*booking);
      std::istringstream stream(line);
      words.insert(words.end(), std::istream_iterator<std::string>(stream), {});
    }

  for (const auto& [account, currency, cents] : balances.sorted() | std::views::take(5))
    std::cout << account << ' ' << static_cast<int>(currency) << ' ' << cents << '\n';
  for (const auto& [name, currency] : currency_names)
    std::cout << name << ' ' << balances.total(currency) << '\n';

  const auto by_length = grouped<std::size_t>(words, [](const auto& word) { return word.size(); });
  const auto by_initial = grouped<char>(words, [](const auto& word) { return word.front(); });
  const auto by_both = grouped<std::pair<char, std::size_t>>(
      words, [](const auto& word) { return std::pair(word.front(), word.size()); });
  std::cout << by_length.size() << ' ' << by_initial.size() << ' ' << by_both.size() << '\n';

  const auto shout = pipeline(
      std::string("remarks: ") + std::to_string(balances.remarks().size()),
      [](std::string text) { return std::vector<char>(text.rbegin(), text.rend()); },
      [](std::vector<char> letters) { return std::string(letters.rbegin(), letters.rend()); },
      [](const std::string& text) { return std::make_unique<std::string>(text + "!"); },
      [](std::unique_ptr<std::string> text) { return std::move(*text); });
  std::cout << shout << '\n' << derivatives_at(table, 0.5) << '\n';
}
