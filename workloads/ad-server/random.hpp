// Numbers that are the same in every run: the index, and so every answer, follows from them alone.
#pragma once

#include <cstdint>

// splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
class random_numbers
{
  public:
    explicit random_numbers(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next()
    {
        std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
        return mixed ^ (mixed >> 31);
    }
    // Below `bound`, which is small beside 2^64.
    std::uint64_t below(std::uint64_t bound)
    {
        return next() % bound;
    }

  private:
    std::uint64_t state_;
};
