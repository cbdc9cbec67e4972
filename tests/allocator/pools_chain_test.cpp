// Chains and their groups, on made-up stacks: which return addresses there are, what their frames are like and what their
// functions do with an object is each test's to say. Rules, functions and groups come from stand-ins below.
#include "heap_isolated.h"
#include "pools_internals.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace
{

// ---- a world of return addresses --------------------------------------------------------------------------------------

constexpr uintptr_t UNLOADED = uintptr_t{1} << 40; // return addresses from here on are in no object

struct function {
    follow what = FOLLOW_USED;
    frame_known known = FRAME_KNOWN;
};

struct world {
    std::mutex mutex; // the stand-ins are called by many threads
    std::map<uintptr_t, function> functions;
    std::map<uintptr_t, unsigned> analysed; // how often each was
    std::vector<std::vector<uintptr_t>> groups; // their chains; beyond CHAIN_KEPT, zeros
    std::vector<bool> complete;
    uint32_t groups_most = GROUPS_MAX;
    void (*while_group_is_made)() = nullptr;
    std::map<uint32_t, verdict> verdicts; // of groups
    std::vector<uintptr_t> dropped; // from the site table; 0: all
    std::map<uintptr_t, uint64_t> learnt; // words on sites
    std::set<uintptr_t> gone; // no longer in an object
    bool out_of_memory = false;

    // Of a function that no test has spoken of.
    function at(uintptr_t address)
    {
        std::lock_guard<std::mutex> lock(mutex);
        analysed[address]++;
        auto found = functions.find(address);
        return found == functions.end() ? function() : found->second;
    }
} world;

// A stack of equal frames, whose callers follow one another in `addresses`.
class stack_of
{
  public:
    static constexpr size_t WORDS = 4;

    explicit stack_of(std::vector<uintptr_t> addresses)
        : addresses_(std::move(addresses)), words_(WORDS * addresses_.size())
    {
        for (size_t i = 1; i < addresses_.size(); i++) words_[i * WORDS - 1] = addresses_[i];
    }
    uint32_t group() const
    {
        frame at = {addresses_[0], reinterpret_cast<uintptr_t>(words_.data()), 0};
        return chain_group(&at);
    }

  private:
    std::vector<uintptr_t> addresses_;
    std::vector<uintptr_t> words_;
};

uint32_t group_of(std::vector<uintptr_t> addresses)
{
    return stack_of(std::move(addresses)).group();
}

void passes_on(uintptr_t address)
{
    world.functions[address] = {FOLLOW_PASSED_ON, FRAME_KNOWN};
}

struct chain_figures figures()
{
    struct chain_figures now;
    chain_figures(&now);
    return now;
}

verdict_kind verdict_of(uintptr_t address)
{
    return static_cast<verdict_kind>(site_verdict(address).kind);
}

// What the site table has a chain by.
uintptr_t key_of(const std::vector<uintptr_t> &chain)
{
    uint64_t key = 0;
    for (uintptr_t address : chain) key = chain_key(key, address);
    return chain_place(key, static_cast<unsigned>(chain.size()), chain.back());
}

void decide(uint32_t group, verdict verdict)
{
    world.verdicts[group] = verdict;
    chain_ask_again(group);
}

} // namespace

// ---- stand-ins -------------------------------------------------------------------------------------------------------------

extern "C" {
struct pool_settings pool_settings = {POOL_CHAIN_ADAPTIVE, POOL_PLACING_JUDGED, true, false, 4096, 100, 128, ""};

frame_rule __wrap_frame_rule_find(uintptr_t address, uintptr_t *start, uintptr_t *end)
{
    function function = world.at(address);
    bool told = function.known != FRAME_UNKNOWN;
    if (start != nullptr) *start = told ? address - 1 : 0;
    if (end != nullptr) *end = told ? address + 1 : 0;
    constexpr int32_t SIZE = stack_of::WORDS * sizeof(uintptr_t);
    return {SIZE, -static_cast<int32_t>(sizeof(uintptr_t)), 0, false, static_cast<uint8_t>(function.known)};
}

follow follow_pointer(uintptr_t address, uintptr_t, uintptr_t, int *, unsigned *decoded)
{
    *decoded += 10;
    return world.functions.count(address) != 0 ? world.functions[address].what : FOLLOW_USED;
}

uint32_t group_new(const uintptr_t *chain, unsigned length, bool complete)
{
    if (world.while_group_is_made != nullptr) world.while_group_is_made();
    std::lock_guard<std::mutex> lock(world.mutex);
    if (world.groups.size() == world.groups_most) return GROUP_NONE;
    std::vector<uintptr_t> kept(chain, chain + std::min(length, unsigned{CHAIN_KEPT}));
    kept.resize(length);
    world.groups.push_back(kept);
    world.complete.push_back(complete);
    return static_cast<uint32_t>(world.groups.size() - 1);
}

void *__real_space_metadata(size_t size);
void *__wrap_space_metadata(size_t size)
{
    return world.out_of_memory ? nullptr : __real_space_metadata(size);
}

verdict group_verdict(uint32_t group)
{
    std::lock_guard<std::mutex> lock(world.mutex);
    return world.verdicts[group];
}

void site_learn(uintptr_t key, uint64_t word)
{
    std::lock_guard<std::mutex> lock(world.mutex);
    world.learnt[key] = word;
}

void site_drop(uintptr_t key)
{
    std::lock_guard<std::mutex> lock(world.mutex);
    world.dropped.push_back(key);
}

void sites_drop()
{
    site_drop(0);
}

int __wrap__dl_find_object(void *address, dl_find_object *)
{
    auto number = reinterpret_cast<uintptr_t>(address) + 1; // it is looked for by the call before it
    return number < UNLOADED && world.gone.count(number) == 0 ? 0 : -1;
}
}

namespace
{

class FixedLengths : public ::testing::TestWithParam<pool_chain>
{
};

// ---- how long chains are ---------------------------------------------------------------------------------------------------

TEST(Chains, EndWhereAnObjectIsUsed)
{
    uint32_t group = group_of({0x1000, 0x2000});
    ASSERT_EQ(0U, group);
    EXPECT_EQ(std::vector<uintptr_t>{0x1000}, world.groups[group]);
    EXPECT_TRUE(world.complete[group]);
    EXPECT_EQ(group, group_of({0x1000, 0x3000})) << "whoever calls";
    EXPECT_NE(group, group_of({0x1008, 0x2000}));
}

TEST(Chains, GoOnThroughWrappers)
{
    passes_on(0x1000);
    passes_on(0x2000);
    uint32_t first = group_of({0x1000, 0x2000, 0x3000}), second = group_of({0x1000, 0x2000, 0x4000});
    uint32_t shorter = group_of({0x1000, 0x5000});
    ASSERT_EQ(3U, world.groups.size());
    EXPECT_EQ((std::vector<uintptr_t>{0x1000, 0x2000, 0x3000}), world.groups[first]);
    EXPECT_EQ((std::vector<uintptr_t>{0x1000, 0x2000, 0x4000}), world.groups[second]);
    EXPECT_EQ((std::vector<uintptr_t>{0x1000, 0x5000}), world.groups[shorter]);
    EXPECT_EQ(first, group_of({0x1000, 0x2000, 0x3000}));
    EXPECT_EQ(3U, world.groups.size());
}

TEST(Chains, TheirOrderMatters)
{
    for (uintptr_t address : {0x1000, 0x2000}) passes_on(address);
    EXPECT_NE(group_of({0x1000, 0x2000, 0x3000}), group_of({0x2000, 0x1000, 0x3000}));
}

TEST(Chains, AreAnalysedOnce)
{
    passes_on(0x1000);
    for (int i = 0; i < 10; i++) {
        group_of({0x1000, 0x2000});
        group_of({0x1000, 0x3000});
    }
    for (uintptr_t address : {0x1000, 0x2000, 0x3000}) EXPECT_EQ(1U, world.analysed[address]);
    struct chain_figures now = figures();
    EXPECT_EQ(2U, now.chains);
    EXPECT_EQ(4U, now.chain_addresses);
    EXPECT_EQ(30U, now.instructions_decoded);
    EXPECT_GT(now.analysis_ns_median, 0U);
}

std::vector<uintptr_t> wrappers_then(unsigned wrappers, uintptr_t last)
{
    std::vector<uintptr_t> chain;
    for (uintptr_t i = 0; i < wrappers; i++) chain.push_back(0x1000 + 8 * i);
    for (uintptr_t address : chain) passes_on(address);
    chain.push_back(last);
    return chain;
}

TEST(Chains, OfMoreWrappersThanAnybodyHasAreCut)
{
    uint32_t longest = group_of(wrappers_then(15, 0x9000));
    EXPECT_EQ(16U, world.groups[longest].size());
    EXPECT_TRUE(world.complete[longest]);
    uint32_t cut = group_of(wrappers_then(16, 0x9000));
    EXPECT_EQ(16U, world.groups[cut].size());
    EXPECT_FALSE(world.complete[cut]);
    EXPECT_EQ(cut, group_of(wrappers_then(17, 0x9000)));
    EXPECT_EQ(1U, figures().fallbacks[FALLBACK_TOO_DEEP]);
}

TEST(Chains, EndWithTheStack)
{
    world.functions[0x2000] = {FOLLOW_PASSED_ON, FRAME_OUTERMOST};
    passes_on(0x1000);
    uint32_t group = group_of({0x1000, 0x2000});
    EXPECT_EQ(2U, world.groups[group].size());
    EXPECT_TRUE(world.complete[group]);
}

TEST_P(FixedLengths, AreAsLongAsSet)
{
    unsigned length = GetParam() - POOL_CHAIN_1 + 1;
    pool_settings.chain = GetParam();
    uint32_t group = group_of({0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000});
    EXPECT_EQ(length, world.groups[group].size());
    EXPECT_TRUE(world.complete[group]);
    EXPECT_EQ(group, group_of({0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x7000}));
    if (length > 1) {
        EXPECT_NE(group, group_of({0x1000, 0x2001, 0x3001, 0x4001, 0x5000, 0x7000}));
    }
    world.functions[0x8000].known = FRAME_OUTERMOST;
    EXPECT_EQ(1U, world.groups[group_of({0x8000})].size());
}

INSTANTIATE_TEST_SUITE_P(Chains, FixedLengths,
                         ::testing::Values(POOL_CHAIN_1, POOL_CHAIN_2, POOL_CHAIN_3, POOL_CHAIN_4));

TEST(Chains, AreFullToTheirGreatestLength)
{
    pool_settings.chain = POOL_CHAIN_FULL;
    std::vector<uintptr_t> addresses;
    for (uintptr_t i = 0; i < 10000; i++) addresses.push_back(0x1000 + 8 * i);
    uint32_t cut = group_of(addresses);
    EXPECT_EQ(64U, world.groups[cut].size());
    EXPECT_FALSE(world.complete[cut]);
    world.functions[0x1010].known = FRAME_OUTERMOST;
    addresses[1] = 0x900;
    uint32_t whole = group_of(addresses);
    EXPECT_EQ(3U, world.groups[whole].size());
    EXPECT_TRUE(world.complete[whole]);
}

// ---- what cannot be told -----------------------------------------------------------------------------------------------------

TEST(Fallbacks, WithoutARuleObjectsAreOrdinaryAtOnce)
{
    world.functions[0x1000].known = FRAME_UNKNOWN;
    EXPECT_EQ(GROUP_NONE, group_of({0x1000, 0x2000}));
    EXPECT_EQ(VERDICT_ORDINARY, verdict_of(0x1000));
    EXPECT_EQ(1U, figures().fallbacks[FALLBACK_NO_UNWIND]);
}

TEST(Fallbacks, WithoutARuleFurtherOutOnlyThoseFromThere)
{
    passes_on(0x1000);
    world.functions[0x2000].known = FRAME_UNKNOWN;
    for (int i = 0; i < 10; i++) EXPECT_EQ(GROUP_NONE, group_of({0x1000, 0x2000, 0x3000}));
    EXPECT_EQ(VERDICT_SLOW, verdict_of(0x1000));
    EXPECT_NE(GROUP_NONE, group_of({0x1000, 0x4000}));
    EXPECT_EQ(1U, figures().fallbacks[FALLBACK_NO_UNWIND]);
    EXPECT_EQ(1U, world.analysed[0x2000]);
}

TEST(Fallbacks, AFunctionThatCannotBeFollowedEndsAChain)
{
    world.functions[0x1000].what = FOLLOW_UNKNOWN;
    uint32_t group = group_of({0x1000, 0x2000});
    ASSERT_NE(GROUP_NONE, group);
    EXPECT_FALSE(world.complete[group]);
    EXPECT_EQ(1U, figures().fallbacks[FALLBACK_NO_CODE]);
}

TEST(Fallbacks, WhenThereAreTooManyGroups)
{
    world.groups_most = 1;
    EXPECT_NE(GROUP_NONE, group_of({0x1000}));
    for (int i = 0; i < 10; i++) EXPECT_EQ(GROUP_NONE, group_of({0x2000}));
    EXPECT_EQ(VERDICT_ORDINARY, verdict_of(0x2000));
    EXPECT_EQ(1U, figures().fallbacks[FALLBACK_TOO_MANY_GROUPS]);
}

TEST(Fallbacks, AFrameThatIsNotAsItsRuleSays)
{
    passes_on(0x1000);
    EXPECT_NE(GROUP_NONE, group_of({0x1000, 0x2000}));
    frame nowhere = {0x1000, UINTPTR_MAX - 15, 0};
    EXPECT_EQ(GROUP_NONE, chain_group(&nowhere));
    passes_on(0x3000);
    nowhere.return_address = 0x3000;
    for (int i = 0; i < 2; i++) EXPECT_EQ(GROUP_NONE, chain_group(&nowhere));
    EXPECT_EQ(3U, figures().fallbacks[FALLBACK_STACK]);
}

// As when a signal comes in the midst of it, whose handler allocates.
TEST(Fallbacks, WhileAChainIsLearntNewOnesHaveNoGroup)
{
    static uint32_t same, other, known;
    known = group_of({0x2000});
    world.while_group_is_made = [] {
        world.while_group_is_made = nullptr;
        same = group_of({0x1000});
        other = group_of({0x3000});
        EXPECT_EQ(known, group_of({0x2000}));
    };
    EXPECT_NE(GROUP_NONE, group_of({0x1000}));
    EXPECT_EQ(GROUP_NONE, same);
    EXPECT_EQ(GROUP_NONE, other);
    EXPECT_NE(GROUP_NONE, group_of({0x3000}));
    EXPECT_EQ(3U, world.groups.size());
    EXPECT_EQ(2U, figures().fallbacks[FALLBACK_BUSY]);
}

// ---- verdicts ------------------------------------------------------------------------------------------------------------------

TEST(Verdicts, AreOfSitesThatLeadToOneGroup)
{
    uint32_t direct = group_of({0x1000});
    passes_on(0x2000);
    uint32_t wrapped = group_of({0x2000, 0x3000});
    EXPECT_EQ(VERDICT_SLOW, verdict_of(0x1000));
    decide(direct, {VERDICT_POOL, 3, 75, 0, 3});
    decide(wrapped, {VERDICT_POOL, 4, 76, 0, 4});
    EXPECT_EQ(VERDICT_POOL, verdict_of(0x1000));
    EXPECT_EQ(75U, site_verdict(0x1000).bin);
    EXPECT_EQ(VERDICT_SLOW, verdict_of(0x2000));
    EXPECT_EQ(VERDICT_SLOW, verdict_of(0x3000));
    EXPECT_EQ(VERDICT_SLOW, verdict_of(0x4000)) << "nobody has allocated there";
}

TEST(Verdicts, AreFoundBehindWrappersByTheKeyOfTheChain)
{
    passes_on(0x1000);
    passes_on(0x2000);
    uint32_t group = group_of({0x1000, 0x2000, 0x3000});
    EXPECT_EQ(key_of({0x1000, 0x2000, 0x3000}), chain_site(group));
    EXPECT_TRUE(world.learnt.empty()) << "while the chain was new";
    group_of({0x1000, 0x2000, 0x3000});
    ASSERT_EQ(2U, world.learnt.size());
    for (uintptr_t key : {uintptr_t{0x1000}, key_of({0x1000, 0x2000})}) {
        ASSERT_EQ(1U, world.learnt.count(key));
        EXPECT_EQ(VERDICT_DEEPER, static_cast<uint8_t>(world.learnt[key]));
        frame_rule rule = rule_unpacked(world.learnt[key] >> VERDICT_KIND_BITS);
        EXPECT_EQ(static_cast<int32_t>(stack_of::WORDS * sizeof(uintptr_t)), rule.cfa_offset);
        EXPECT_EQ(-static_cast<int32_t>(sizeof(uintptr_t)), rule.return_offset);
    }
}

TEST(Rules, AreTheSameUnpacked)
{
    constexpr int32_t WORD = sizeof(uintptr_t), MOST = ((1 << RULE_DISTANCE_BITS) - 1) * WORD;
    for (const frame_rule &rule :
         {frame_rule{16, -8, 0, 0, FRAME_KNOWN}, frame_rule{16, -8, -16, 1, FRAME_KNOWN},
          frame_rule{MOST, -MOST, -MOST, 1, FRAME_KNOWN}, frame_rule{0, 0, 0, 0, FRAME_KNOWN}}) {
        frame_rule same = rule_unpacked(rule_packed(&rule));
        EXPECT_EQ(rule.cfa_offset, same.cfa_offset);
        EXPECT_EQ(rule.return_offset, same.return_offset);
        EXPECT_EQ(rule.base_offset, same.base_offset);
        EXPECT_EQ(rule.from_base, same.from_base);
        EXPECT_EQ(FRAME_KNOWN, same.known);
    }
}

TEST(Verdicts, ThatChangeMakeTheFastPathAskAgain)
{
    passes_on(0x2000);
    uint32_t direct = group_of({0x1000}), wrapped = group_of({0x2000, 0x3000});
    decide(direct, {VERDICT_POOL, 3, 75, 0, 3});
    decide(wrapped, {VERDICT_POOL, 3, 75, 0, 3});
    decide(direct, {VERDICT_ORDINARY, 0, 0, 0, 0});
    EXPECT_EQ((std::vector<uintptr_t>{0x1000, key_of({0x2000, 0x3000}), 0x1000}), world.dropped);
    EXPECT_EQ(VERDICT_ORDINARY, verdict_of(0x1000));
}

// ---- many chains ---------------------------------------------------------------------------------------------------------------

TEST(Growth, LosesNothing)
{
    isolated::expect_passes([] {
        ASSERT_TRUE(heap_malloc(1) != nullptr); // as in a program: the first allocation starts the space
        constexpr uintptr_t CHAINS = 6000;
        passes_on(0x1000);
        std::vector<uint32_t> groups;
        for (uintptr_t i = 0; i < CHAINS; i++)
            groups.push_back(i % 2 == 0 ? group_of({0x10000 + 8 * i}) : group_of({0x1000, 0x10000 + 8 * i}));
        for (uint32_t group : groups) decide(group, {VERDICT_POOL, 1, 80, 0, 8});
        ASSERT_EQ(CHAINS, world.groups.size());
        for (uintptr_t i = 0; i < CHAINS; i++) {
            ASSERT_EQ(groups[i], i % 2 == 0 ? group_of({0x10000 + 8 * i}) : group_of({0x1000, 0x10000 + 8 * i}));
            ASSERT_EQ(i % 2 == 0 ? VERDICT_POOL : VERDICT_SLOW, verdict_of(0x10000 + 8 * i));
        }
        ASSERT_EQ(CHAINS, world.groups.size());
    });
}

TEST(Growth, HasAnEnd)
{
    isolated::expect_passes([] {
        ASSERT_TRUE(heap_malloc(1) != nullptr);
        passes_on(0x1000);
        uint32_t first = group_of({0x1000, 0x2000});
        for (uintptr_t i = 0; i < 40000; i++) group_of({0x1000, 0x10000 + 8 * i});
        EXPECT_EQ(size_t{GROUPS_MAX}, world.groups.size());
        EXPECT_EQ(first, group_of({0x1000, 0x2000}));
        EXPECT_EQ(1U, figures().fallbacks[FALLBACK_TOO_MANY_CHAINS]);
        EXPECT_EQ(GROUP_NONE, group_of({0x7000000}));
    });
}

TEST(Growth, DoesNotHappenWithoutMemory)
{
    world.out_of_memory = true;
    std::vector<uint32_t> groups;
    for (uintptr_t i = 0; i < 1000; i++) groups.push_back(group_of({0x10000 + 8 * i}));
    for (uintptr_t i = 0; i < 1000; i++) EXPECT_EQ(groups[i], group_of({0x10000 + 8 * i}));
    EXPECT_NE(GROUP_NONE, groups.front());
    EXPECT_EQ(GROUP_NONE, groups.back());
}

// ---- code that is unmapped -------------------------------------------------------------------------------------------------------

TEST(Forgetting, IsOfWhatIsInNoObject)
{
    passes_on(0x1000);
    uint32_t kept = group_of({0x1000, 0x2000}), lost = group_of({0x1000, 0x3000}), site = group_of({0x4000});
    decide(site, {VERDICT_POOL, 1, 80, 0, 8});
    world.gone = {0x3000, 0x4000};
    world.dropped.clear();
    chain_forget();
    EXPECT_EQ(std::vector<uintptr_t>{0}, world.dropped);
    EXPECT_EQ(VERDICT_SLOW, verdict_of(0x4000));
    EXPECT_EQ(kept, group_of({0x1000, 0x2000}));
    EXPECT_NE(lost, group_of({0x1000, 0x3000}));
    EXPECT_NE(site, group_of({0x4000}));
    EXPECT_EQ(1U, world.analysed[0x1000]);
    EXPECT_EQ(2U, world.analysed[0x3000]);
}

// A program that loads and unloads code for ever.
TEST(Forgetting, MakesNoRoomWithoutEnd)
{
    isolated::expect_passes([] {
        ASSERT_TRUE(heap_malloc(1) != nullptr);
        struct space_figures before, after;
        space_figures(&before);
        for (uintptr_t i = 0; i < 100000; i++) {
            group_of({UNLOADED + 8 * i});
            if (i % 1000 == 0) chain_forget();
        }
        space_figures(&after);
        EXPECT_LT(after.metadata - before.metadata, size_t{4} << 20);
    });
}

TEST(Forgetting, AWrapperIsAnalysedAgainAndItsCallersAreNot)
{
    passes_on(0x1000);
    uint32_t group = group_of({0x1000, 0x2000});
    world.gone = {0x1000};
    chain_forget();
    EXPECT_EQ(group, group_of({0x1000, 0x2000}));
    EXPECT_EQ(2U, world.analysed[0x1000]);
    EXPECT_EQ(1U, world.analysed[0x2000]);
    world.functions.erase(0x1000); // other code is there now, which uses what it allocates
    chain_forget();
    EXPECT_EQ(std::vector<uintptr_t>{0x1000}, world.groups[group_of({0x1000, 0x2000})]);
}

// ---- threads -----------------------------------------------------------------------------------------------------------------------

constexpr unsigned THREADS = 8, SITES = 900;

// Every third site is a wrapper with ten callers.
std::vector<uintptr_t> chain_at(uint64_t choice)
{
    uintptr_t site = 0x10000 + 8 * (choice % SITES);
    return {site, 0x1000000 + 8 * (choice / SITES % 10), 0x2000000};
}

size_t chains_in_all()
{
    std::set<std::vector<uintptr_t>> distinct;
    for (const auto &chain : world.groups) distinct.insert(chain);
    return distinct.size();
}

void many_threads(uint64_t rounds, bool forget)
{
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < THREADS; t++) {
        threads.emplace_back([t, rounds, forget] {
            uint64_t random = t + 1;
            for (uint64_t i = 0; i < rounds; i++) {
                random = random * 6364136223846793005 + 1442695040888963407;
                std::vector<uintptr_t> chain = chain_at(random >> 33);
                uint32_t group = group_of(chain);
                if (group == GROUP_NONE) continue; // somebody else is learning a chain
                EXPECT_LT(group, GROUPS_MAX);
                EXPECT_LE(site_verdict(chain[0]).kind, VERDICT_MIXED);
                if (i % 16 == 0) chain_ask_again(group);
                if (forget && t == 0 && i % 512 == 0) chain_forget();
            }
        });
    }
    for (auto &thread : threads) thread.join();
}

TEST(Threads, LearnEachChainOnceTogether)
{
    isolated::expect_passes([] {
        ASSERT_TRUE(heap_malloc(1) != nullptr);
        for (uintptr_t i = 0; i < SITES; i += 3) passes_on(0x10000 + 8 * i);
        many_threads(20000, false);
        // What was never learnt, because others were busy whenever it came, is now.
        for (uint64_t choice = 0; choice < SITES * 10; choice++) {
            std::vector<uintptr_t> chain = chain_at(choice);
            uint32_t group = group_of(chain);
            chain.resize(choice % 3 == 0 ? 2 : 1);
            ASSERT_EQ(chain, world.groups[group]);
        }
        EXPECT_EQ(world.groups.size(), chains_in_all());
        EXPECT_EQ(SITES / 3 * 10 + SITES / 3 * 2, world.groups.size());
        EXPECT_EQ(world.groups.size(), figures().chains);
    });
}

TEST(Threads, GoOnWhileOneForgets)
{
    isolated::expect_passes([] {
        ASSERT_TRUE(heap_malloc(1) != nullptr);
        for (uintptr_t i = 0; i < SITES; i += 3) passes_on(0x10000 + 8 * i);
        for (uintptr_t i = 0; i < SITES; i += 30) world.gone.insert(0x10000 + 8 * i);
        many_threads(5000, true);
        EXPECT_GE(world.groups.size(), chains_in_all());
    });
}

#if !HEAPFIT_TEST_SANITIZED && !HEAPFIT_TEST_EMULATED
// A child must find what was learnt before, and the lock free, whatever another thread was in the middle of.
TEST(Threads, ForkWhileChainsAreLearnt)
{
    isolated::expect_passes([] {
        ASSERT_TRUE(heap_malloc(1) != nullptr);
        static std::atomic<bool> stop;
        static std::atomic<uintptr_t> next{0x100000};
        stop = false;
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++)
            threads.emplace_back([] {
                while (!stop) {
                    std::array<uintptr_t, stack_of::WORDS> words = {};
                    frame at = {next += 8, reinterpret_cast<uintptr_t>(words.data()), 0};
                    chain_group(&at);
                    usleep(50); // the tables shall not be full before the last fork
                }
            });
        for (int i = 0; i < 50; i++) {
            uintptr_t newest = next;
            world.mutex.lock(); // it is the test's own, which the child needs, too
            pid_t child = fork();
            world.mutex.unlock();
            if (child == 0) {
                chain_fork_child();
                alarm(isolated::TIMEOUT_SECONDS);
                for (uintptr_t address = newest - 8 * 64; address < newest + 8 * 64; address += 8)
                    if (group_of({address}) == GROUP_NONE) _exit(isolated::FAILED);
                _exit(isolated::PASSED);
            }
            int status = -1;
            waitpid(child, &status, 0);
            EXPECT_EQ(0, status);
        }
        stop = true;
        for (auto &thread : threads) thread.join();
    });
}
#endif

} // namespace
