// Values that are the same inside the middleware and in FIX 4.4: sides, order types, states.
#pragma once

namespace trading
{

namespace side
{
constexpr char buy = '1';
constexpr char sell = '2';
} // namespace side

namespace order_type
{
constexpr char market = '1'; // what cannot be executed at once is cancelled
constexpr char limit = '2';
} // namespace order_type

namespace execution
{
constexpr char accepted = '0';
constexpr char cancelled = '4';
constexpr char rejected = '8';
constexpr char trade = 'F';
} // namespace execution

namespace status
{
constexpr char open = '0';
constexpr char partly_filled = '1';
constexpr char filled = '2';
constexpr char cancelled = '4';
constexpr char rejected = '8';
} // namespace status

} // namespace trading
