/* What is the cheapest way from one place of a map to another?
 *
 * A relative of 473.astar of SPEC CPU 2006: A* (Hart, Nilsson and Raphael 1968) over regions. The cells of a map are
 * gathered into small regions, each an object with a growing array of its neighbours; a search makes a step object
 * for each region that it reaches and drops them all at its end. Who has gone a way has made it dearer for the next.
 * The map comes from a seed. A way's regions must be neighbours, its price must be their sum, and the first ways are
 * compared with those of a search without an estimate.
 */
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/mman.h>

namespace
{

/* ------------------------------------------------------------------ what the C programs have from micro.h */

struct Option {
    const char *name;
    uint64_t *value;
    uint64_t least, most;
    const char *help;
};

class Random
{
  public:
    explicit Random(uint64_t seed) : state_(mix(seed + 1) | 1) {}

    /* In [0, bound). */
    uint64_t below(uint64_t bound)
    {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return ((state_ * 0x2545f4914f6cdd1dU >> 32) * bound) >> 32;
    }

    static uint64_t mix(uint64_t x)
    {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        return x ^ (x >> 31);
    }

  private:
    uint64_t state_;
};

uint64_t width = 1600, region_cells = 8, walls = 25, ways = 48, scale = 100, seed = 1;

const std::vector<Option> OPTIONS = {
    {"width", &width, 16, 20000, "cells along an edge of the map"},
    {"region", &region_cells, 1, 1000, "cells of a region, at most"},
    {"walls", &walls, 0, 90, "percent of the cells that nobody can enter"},
    {"ways", &ways, 1, 1000000, "to find"},
    {"scale", &scale, 1, 1000000, "percentage of the ways to find"},
    {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
};

[[noreturn]] void usage(int code)
{
    std::printf(
        "astar: what is the cheapest way from one place of a map to another?\n\nusage: astar [--NAME NUMBER]...\n");
    for (const Option &option : OPTIONS)
        std::printf("  --%-14s %s (%" PRIu64 ")\n", option.name, option.help, *option.value);
    std::exit(code);
}

void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (std::strcmp(argv[i], "--help") == 0) usage(EXIT_SUCCESS);
        bool known = false;
        for (const Option &option : OPTIONS) {
            if (std::strncmp(argv[i], "--", 2) != 0 || std::strcmp(argv[i] + 2, option.name) != 0 || i + 1 == argc)
                continue;
            char *end;
            *option.value = std::strtoull(argv[i + 1], &end, 10);
            known = end != argv[i + 1] && *end == '\0' && *option.value >= option.least && *option.value <= option.most;
        }
        if (known) continue;
        std::fprintf(stderr, "astar: %s is not an option with a number that fits; see --help\n", argv[i]);
        std::exit(2);
    }
    ways = std::max<uint64_t>(ways * scale / 100, 1);
}

double now()
{
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/* A table that no allocator knows of. */
template <typename Element> Element *table(uint64_t count)
{
    void *memory = mmap(nullptr, count * sizeof(Element), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<Element *>(memory);
}

void require(bool holds, const char *what)
{
    if (!holds) throw std::runtime_error(what);
}

/* ------------------------------------------------------------------ the map */

struct Step;

struct Region {
    uint32_t id;
    uint32_t cells = 0;
    double x = 0, y = 0; /* its middle */
    double toll;
    uint64_t visit = 0; /* the search that last reached it */
    Step *step = nullptr; /* in that search */
    std::vector<Region *> neighbours;
    uint64_t travellers = 0;

    Region(uint32_t id, double toll) : id(id), toll(toll) {}
};

/* The way by which a search reaches a region. */
struct Step {
    Region *region;
    Step *from;
    double price;
    double estimate; /* of the whole way, through here */
    bool final = false;

    Step(Region *region, Step *from, double price, double estimate)
        : region(region), from(from), price(price), estimate(estimate)
    {
    }
};

class Map
{
  public:
    explicit Map(Random &random) : wall_(table<bool>(width * width)), at_(table<Region *>(width * width))
    {
        for (uint64_t cell = 0; cell < width * width; cell++) wall_[cell] = random.below(100) < walls;
        for (uint64_t cell = 0; cell < width * width; cell++)
            if (!wall_[cell] && !at_[cell]) grow(cell, random);
        for (uint64_t cell = 0; cell < width * width; cell++) join(cell);
    }
    Map(const Map &) = delete;
    Map &operator=(const Map &) = delete;

    ~Map()
    {
        for (Region *region : regions) delete region;
        munmap(wall_, width * width * sizeof *wall_);
        munmap(at_, width * width * sizeof(Region *));
    }

    std::vector<Region *> regions;

  private:
    bool *wall_;
    Region **at_; /* of each cell */

    /* The cells beside one, on the map: their number. */
    static int beside(uint64_t cell, uint64_t (&cells)[4])
    {
        int count = 0;
        if (cell % width > 0) cells[count++] = cell - 1;
        if (cell % width + 1 < width) cells[count++] = cell + 1;
        if (cell >= width) cells[count++] = cell - width;
        if (cell + width < width * width) cells[count++] = cell + width;
        return count;
    }

    /* A region from a cell on, over free cells beside it. */
    void grow(uint64_t first, Random &random)
    {
        auto *region =
            new Region(static_cast<uint32_t>(regions.size()), 1 + static_cast<double>(random.below(300)) / 100);
        regions.push_back(region);
        std::vector<uint64_t> cells{first};
        at_[first] = region;
        for (uint64_t i = 0; i < cells.size(); i++) {
            uint64_t near[4];
            for (int j = beside(cells[i], near); j-- > 0 && cells.size() < region_cells;)
                if (!wall_[near[j]] && !at_[near[j]]) {
                    at_[near[j]] = region;
                    cells.push_back(near[j]);
                }
            region->x += static_cast<double>(cells[i] % width);
            region->y += static_cast<double>(cells[i] / width);
        }
        region->cells = static_cast<uint32_t>(cells.size());
        region->x /= region->cells;
        region->y /= region->cells;
    }

    void join(uint64_t cell)
    {
        uint64_t near[4];
        Region *region = at_[cell];
        for (int i = region ? beside(cell, near) : 0; i-- > 0;) {
            Region *other = at_[near[i]];
            std::vector<Region *> &known = region->neighbours;
            if (!other || other == region || std::find(known.begin(), known.end(), other) != known.end()) continue;
            known.push_back(other);
        }
    }
};

/* ------------------------------------------------------------------ a search */

double distance(const Region &one, const Region &other)
{
    return std::hypot(one.x - other.x, one.y - other.y);
}

double price_between(const Region &one, const Region &other)
{
    return distance(one, other) * (one.toll + other.toll) / 2;
}

/* Equal estimates are decided by number: never by address. */
struct Dearer {
    bool operator()(const Step *one, const Step *other) const
    {
        if (one->estimate != other->estimate) return one->estimate > other->estimate;
        return one->region->id > other->region->id;
    }
};

class Search
{
  public:
    /* Without an estimate, all directions are searched alike. */
    Search(Region *start, Region *goal, bool estimating) : goal_(goal), estimating_(estimating)
    {
        visit_ = ++searches;
        reach(start, nullptr, 0);
        while (!open_.empty() && !found_) expand();
    }
    Search(const Search &) = delete;
    Search &operator=(const Search &) = delete;

    ~Search()
    {
        for (Step *step : steps_) delete step;
    }

    /* The last step of the way, or nullptr if there is none. */
    [[nodiscard]] const Step *last() const
    {
        return found_;
    }

    static uint64_t searches, reached;

  private:
    std::priority_queue<Step *, std::vector<Step *>, Dearer> open_;
    std::vector<Step *> steps_;
    Region *goal_;
    const Step *found_ = nullptr;
    uint64_t visit_;
    bool estimating_;

    void reach(Region *region, Step *from, double price)
    {
        if (region->visit == visit_ && (region->step->final || region->step->price <= price)) return;
        double left = estimating_ ? distance(*region, *goal_) : 0; /* no toll is below 1 */
        region->step = new Step(region, from, price, price + left);
        region->visit = visit_;
        steps_.push_back(region->step);
        open_.push(region->step);
        reached++;
    }

    void expand()
    {
        Step *step = open_.top();
        open_.pop();
        if (step != step->region->step) return; /* a cheaper one has taken its place */
        step->final = true;
        if (step->region == goal_) found_ = step;
        for (Region *other : step->region->neighbours)
            reach(other, step, step->price + price_between(*step->region, *other));
    }
};

uint64_t Search::searches = 0, Search::reached = 0;

/* ------------------------------------------------------------------ ways */

/* Checks a way, and makes it dearer; returns what identifies it. */
uint64_t travel(const Step *last)
{
    uint64_t hash = 0;
    double price = 0;
    for (const Step *step = last; step; step = step->from) {
        hash = Random::mix(hash + step->region->id);
        if (!step->from) break;
        const std::vector<Region *> &next = step->from->region->neighbours;
        require(std::find(next.begin(), next.end(), step->region) != next.end(), "a way leaps");
        price += price_between(*step->from->region, *step->region);
    }
    require(std::abs(price - last->price) <= 1e-9 * (1 + price), "a way's price is not the sum of its parts");
    for (const Step *step = last; step; step = step->from) {
        step->region->travellers++;
        step->region->toll += 0.02;
    }
    return hash;
}

/* Returns 0 if there is no way. */
uint64_t find_way(const Map &map, Random &random, bool checked)
{
    Region *start = map.regions[random.below(map.regions.size())],
           *goal = map.regions[random.below(map.regions.size())];
    Search search(start, goal, true);
    if (checked) {
        Search plain(start, goal, false);
        require(!plain.last() == !search.last(), "one search has found a way, another none");
        if (plain.last())
            require(std::abs(plain.last()->price - search.last()->price) <= 1e-6, "there is a cheaper way");
    }
    return search.last() ? travel(search.last()) : 0;
}

void run()
{
    Random random(seed);
    double start = now();
    uint64_t digest = 0;
    {
        Map map(random);
        for (uint64_t i = 0; i < ways; i++) digest += find_way(map, random, i == 0);
        for (const Region *region : map.regions) digest += region->travellers * region->id;
    }
    double seconds = now() - start;
    std::printf("operations: %" PRIu64 "\ndigest: %016" PRIx64 "\ncheck ok\n", Search::reached, digest);
    std::fprintf(stderr, "seconds: %.6f\nops_per_s: %.0f\n", seconds, static_cast<double>(Search::reached) / seconds);
}

} // namespace

int main(int argc, char **argv)
{
    try {
        parse(argc, argv);
        run();
    } catch (const std::bad_alloc &) {
        std::fputs("check failed: no memory\n", stderr);
        return 1;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "check failed: %s\n", failure.what());
        return 1;
    }
    return 0;
}
