// Which groups get pools, by what small programs do with their objects: each pattern with its outcome and the reason
// given.
#include "pool_program.h"
#include "stress_seed.h"

#include <deque>

namespace
{

using pool_program::Group;
using pool_program::has_state;
using pool_program::is_ordinary;
using pool_program::is_pooled;

constexpr size_t MANY = 3000; // beyond the last look at any group

constexpr const char *ALONE = "has its size class nearly to itself";
constexpr const char *PARTNERS_ALONE = "shares its size class with its partners only";
constexpr const char *DIE_YOUNG = "its objects die young";

// In a process of its own, whose settings are as they are at first.
template <typename Body> void in_program(Body body)
{
    isolated::expect_passes(body);
}

// 48 bytes: one size class.
struct Record {
    Record *next;
    uint64_t values[5];
};

// The other parts of a program that are not linked to anything, and not watched.
void *make_unwatched(size_t size)
{
    void *object = heap_malloc(size);
    if (object == nullptr) throw std::bad_alloc();
    return std::memset(object, 0, size);
}

// ---- interleaved ---------------------------------------------------------------------------------------------------

TEST(Judge, AnOrderBookWhoseRecordsAreMadeInTurnGetsAPoolForEachKind)
{
    in_program([] {
        Group kinds[3];
        std::vector<Record *> kept;
        for (size_t i = 0; i < MANY; i++)
            for (Group &kind : kinds) kept.push_back(kind.make<Record>());
        for (Group &kind : kinds) EXPECT_TRUE(is_pooled(kind));
        EXPECT_NE(kinds[0].pool(), kinds[1].pool());
        EXPECT_NE(kinds[1].pool(), kinds[2].pool());
        EXPECT_EQ(kinds[0].pool(), place_of(span_of_offset(space_offset(kinds[0].make<Record>()))));
    });
}

TEST(Judge, SoDoListsThatAreBuiltInTurn)
{
    in_program([] {
        Group kinds[2];
        Record *heads[2] = {};
        for (size_t i = 0; i < MANY; i++) {
            for (int kind = 0; kind < 2; kind++) {
                Record *record = kinds[kind].make<Record>();
                record->next = heads[kind];
                heads[kind] = record;
            }
        }
        for (Group &kind : kinds) EXPECT_TRUE(is_pooled(kind));
    });
}

TEST(Judge, AGroupAmongOrdinaryObjectsThatItIsNotLinkedToGetsAPool)
{
    in_program([] {
        Group records;
        for (size_t i = 0; i < MANY; i++) {
            records.make<Record>();
            make_unwatched(sizeof(Record));
        }
        EXPECT_TRUE(is_pooled(records));
    });
}

TEST(Judge, AGroupHereAndThereAmongMostOfItsOwnNeedsNone)
{
    in_program([] {
        Group many, few;
        for (size_t i = 0; i < MANY; i++) {
            many.make<Record>();
            if (i % 8 == 0) few.make<Record>();
        }
        EXPECT_TRUE(is_ordinary(many, ALONE));
        EXPECT_FALSE(few.is(GROUP_ORDINARY)) << few.reason();
    });
}

// ---- alone ---------------------------------------------------------------------------------------------------------

TEST(Judge, AGroupThatHasItsSizeClassToItselfNeedsNoPool)
{
    in_program([] {
        Group nodes, others;
        for (size_t i = 0; i < MANY; i++) {
            nodes.make<Record>();
            others.make(100);
        }
        EXPECT_TRUE(is_ordinary(nodes, ALONE));
        EXPECT_TRUE(is_ordinary(others, ALONE));
    });
}

TEST(Judge, SoDoesOneWhoseObjectsComeInRuns)
{
    in_program([] {
        Group kinds[2];
        for (size_t i = 0; i < MANY; i++) kinds[i / 64 % 2].make<Record>();
        for (Group &kind : kinds) EXPECT_TRUE(is_ordinary(kind, ALONE));
    });
}

// ---- linked one to one ---------------------------------------------------------------------------------------------

struct Patient {
    uint64_t visits, time, left;
};

struct Cell {
    Cell *next, *previous;
    Patient *patient;
};

struct Village {
    Group patients, cells;
    Cell *list = nullptr;

    void admit()
    {
        Patient *patient = patients.make<Patient>();
        Cell *cell = cells.make<Cell>();
        cell->patient = patient;
        cell->next = list;
        if (list != nullptr) list->previous = cell;
        list = cell;
    }
};

TEST(Judge, ListCellsAndWhatTheyPointToStayTogetherWhereTheyAre)
{
    in_program([] {
        Village village;
        for (size_t i = 0; i < MANY; i++) village.admit();
        EXPECT_TRUE(is_ordinary(village.patients, PARTNERS_ALONE));
        EXPECT_TRUE(is_ordinary(village.cells, PARTNERS_ALONE));
    });
}

TEST(Judge, TheyShareAPoolWhereOthersDisturbThem)
{
    in_program([] {
        Village village;
        Group others;
        for (size_t i = 0; i < MANY; i++) {
            village.admit();
            others.make(sizeof(Cell));
        }
        EXPECT_TRUE(village.patients.is_decided());
        EXPECT_NE(uint32_t{POOL_NONE}, village.patients.pool());
        EXPECT_EQ(village.patients.pool(), village.cells.pool());
        EXPECT_NE(village.patients.pool(), others.pool());
    });
}

// Who moves to another list gets a new cell there.
TEST(Judge, NorAreTheyTornApartBecauseSomeHaveMoved)
{
    in_program([] {
        Village village;
        for (size_t i = 0; i < MANY; i++) {
            village.admit();
            if (i % 4 != 0) continue;
            Cell *old = village.list;
            village.list = old->next;
            Cell *anew = village.cells.make<Cell>();
            *anew = *old;
            village.list = anew;
            heap_free(old);
        }
        EXPECT_TRUE(is_ordinary(village.patients, PARTNERS_ALONE));
        EXPECT_TRUE(is_ordinary(village.cells, PARTNERS_ALONE));
    });
}

struct Node {
    Node *left, *right;
    void *payload;
    uint64_t key[3];
};

// Objects of other parts of the program, of all sizes up to 128 bytes.
void disturb(stress::Random &random)
{
    for (int i = 0; i < 24; i++) make_unwatched(random.between(1, 128));
}

TEST(Judge, NodesAndPayloadsOfAnotherSizeGetAMixedPoolWhereOthersDisturbBoth)
{
    in_program([] {
        Group nodes, payloads;
        stress::Random random(1);
        Node *last = nullptr;
        for (size_t i = 0; i < MANY; i++) {
            Node *node = nodes.make<Node>();
            node->payload = payloads.make(80);
            node->left = last;
            last = node;
            disturb(random);
        }
        EXPECT_TRUE(has_state(nodes.is(GROUP_MIXED) ? nodes : payloads, GROUP_MIXED));
        EXPECT_NE(uint32_t{POOL_NONE}, nodes.pool());
        EXPECT_EQ(nodes.pool(), payloads.pool());
        EXPECT_EQ(VERDICT_MIXED, group_verdict(payloads.number()).kind);
    });
}

TEST(Judge, SoDoNodesAndNamesOfManySizes)
{
    in_program([] {
        Group nodes, names;
        stress::Random random(1);
        for (size_t i = 0; i < MANY; i++) {
            void *name = names.make(random.between(1, 100));
            nodes.make<Node>()->payload = name;
            disturb(random);
        }
        EXPECT_NE(uint32_t{POOL_NONE}, nodes.pool());
        EXPECT_EQ(nodes.pool(), names.pool());
    });
}

// Who walks the nodes alone would have to fetch more.
TEST(Judge, NodesThatHaveTheirSizeClassToThemselvesAreDenserAsTheyAre)
{
    in_program([] {
        Group nodes, payloads;
        for (size_t i = 0; i < MANY; i++) nodes.make<Node>()->payload = payloads.make(80);
        EXPECT_TRUE(is_ordinary(nodes, ALONE));
        EXPECT_TRUE(is_ordinary(payloads, ALONE));
    });
}

TEST(Judge, PayloadsThatDieYoungDoNot)
{
    in_program([] {
        Group nodes, payloads;
        stress::Random random(1);
        std::deque<Node *> young;
        for (size_t i = 0; i < MANY; i++) {
            Node *node = nodes.make<Node>();
            node->payload = payloads.make(80);
            young.push_back(node);
            disturb(random);
            if (young.size() < 20) continue;
            heap_free(young.front()->payload);
            young.front()->payload = nullptr;
            young.pop_front();
        }
        EXPECT_TRUE(is_pooled(nodes));
        EXPECT_FALSE(payloads.is(GROUP_MERGED));
    });
}

TEST(Judge, ANodeNowAndThenWithAPayloadIsNoPair)
{
    in_program([] {
        Group nodes, payloads;
        stress::Random random(1);
        for (size_t i = 0; i < MANY; i++) {
            Node *node = nodes.make<Node>();
            disturb(random);
            if (i % 2 == 0) node->payload = payloads.make(80);
        }
        EXPECT_FALSE(nodes.is(GROUP_MIXED)) << nodes.reason();
        EXPECT_FALSE(payloads.is(GROUP_MERGED)) << payloads.reason();
    });
}

// In the ordinary heap, who walks them goes from one size class to another. None is disturbed there by anybody else.
TEST(Judge, PairsOfArraysOfManySizesGetAMixedPoolThoughTheyAreAlone)
{
    in_program([] {
        struct Owner {
            void *arrays[2];
            uint64_t rest[10];
        };
        Group owners, kinds[2];
        stress::Random random(1);
        std::vector<Owner *> all;
        for (size_t i = 0; i < MANY; i++) all.push_back(owners.make<Owner>());
        for (Owner *owner : all) {
            size_t size = random.between(1, 128);
            for (int i : {0, 1}) owner->arrays[i] = kinds[i].make(size);
        }
        EXPECT_NE(uint32_t{POOL_NONE}, kinds[0].pool());
        EXPECT_EQ(kinds[0].pool(), kinds[1].pool());
        EXPECT_TRUE(owners.is(GROUP_ORDINARY));
    });
}

// As in a graph whose edges are kept in two arrays a node: values and where they come from. The nodes are long decided
// about.
TEST(Judge, ArraysOfOneOwnerStayTogether)
{
    in_program([] {
        struct Owner {
            void *arrays[2];
            uint64_t rest[10];
        };
        Group owners, kinds[2];
        std::vector<Owner *> all;
        for (size_t i = 0; i < MANY; i++) all.push_back(owners.make<Owner>());
        EXPECT_TRUE(is_ordinary(owners, ALONE));
        for (Owner *owner : all)
            for (int kind = 0; kind < 2; kind++) owner->arrays[kind] = kinds[kind].make(64);
        EXPECT_EQ(kinds[0].pool(), kinds[1].pool()) << kinds[0].reason() << ", " << kinds[1].reason();
    });
}

// ---- merged by type ------------------------------------------------------------------------------------------------

TEST(Judge, AListThatTwoCallSitesBuildGetsOnePool)
{
    in_program([] {
        Group first, second, others;
        Record *head = nullptr;
        for (size_t i = 0; i < MANY; i++) {
            Record *record = (i % 3 == 0 ? second : first).make<Record>();
            record->next = head;
            head = record;
            others.make(sizeof(Record));
        }
        EXPECT_NE(uint32_t{POOL_NONE}, first.pool());
        EXPECT_EQ(first.pool(), second.pool());
        EXPECT_NE(first.pool(), others.pool());
        const Group &merged = first.is(GROUP_MERGED) ? first : second;
        EXPECT_TRUE(has_state(merged, GROUP_MERGED));
        EXPECT_EQ(AFFINITY_TYPE_I, merged.seen().affinity);
    });
}

TEST(Judge, AListThatTwoCallSitesBuildAloneNeedsNone)
{
    in_program([] {
        Group sites[2];
        Record *head = nullptr;
        for (size_t i = 0; i < MANY; i++) {
            Record *record = sites[i % 2].make<Record>();
            record->next = head;
            head = record;
        }
        for (Group &site : sites) EXPECT_TRUE(is_ordinary(site, PARTNERS_ALONE));
    });
}

TEST(Judge, WhatOneFieldPointsToIsMergedThoughTwoCallSitesMadeIt)
{
    in_program([] {
        Group nodes, sites[2];
        for (size_t i = 0; i < MANY; i++) {
            Node *node = nodes.make<Node>();
            for (size_t unwatched = 0; unwatched < 2; unwatched++) make_unwatched(32);
            node->payload = sites[i % 2].make(32);
        }
        EXPECT_NE(uint32_t{POOL_NONE}, sites[0].pool());
        EXPECT_EQ(sites[0].pool(), sites[1].pool());
        const Group &merged = sites[0].is(GROUP_MERGED) ? sites[0] : sites[1];
        EXPECT_TRUE(has_state(merged, GROUP_MERGED));
        EXPECT_EQ(AFFINITY_TYPE_II, merged.seen().affinity);
    });
}

TEST(Judge, WithoutMergingEachIsJudgedByItself)
{
    in_program([] {
        pool_settings.merge = false;
        Group sites[2];
        for (size_t i = 0; i < MANY; i++) sites[i % 2].make<Record>();
        for (Group &site : sites) EXPECT_TRUE(is_pooled(site));
        EXPECT_NE(sites[0].pool(), sites[1].pool());
    });
}

// The one that comes later finds the other's objects in a pool, where no observation is kept of them.
TEST(Judge, ALateCallSiteJoinsThePoolOfTheListThatItContinues)
{
    in_program([] {
        Group early, late, others;
        Record *head = nullptr;
        auto build = [&](Group &site) {
            for (size_t i = 0; i < MANY; i++) {
                Record *record = site.make<Record>();
                record->next = i % 4 == 0 ? head : record->next;
                if (i % 4 != 0 && head != nullptr) record->next = head;
                head = record;
                others.make(sizeof(Record));
            }
        };
        build(early);
        ASSERT_TRUE(is_pooled(early));
        Record *in_pool = head;
        for (size_t i = 0; i < MANY; i++) {
            Record *record = late.make<Record>();
            record->next = in_pool;
            in_pool = early.make<Record>();
            make_unwatched(sizeof(Record));
        }
        EXPECT_EQ(early.pool(), late.pool()) << late.reason();
        EXPECT_TRUE(has_state(late, GROUP_MERGED));
    });
}

// What both walk is two dense streams then.
TEST(Judge, ALateCallSiteOfAListThatWasLeftAloneIsJudgedByItself)
{
    in_program([] {
        Group early, late;
        Record *head = nullptr;
        auto build = [&](Group &site, size_t count) {
            for (size_t i = 0; i < count; i++) {
                Record *record = site.make<Record>();
                record->next = head;
                head = record;
            }
        };
        build(early, MANY);
        for (size_t i = 0; i < MANY; i++) build(i % 2 == 0 ? early : late, 1);
        EXPECT_TRUE(early.is(GROUP_ORDINARY));
        EXPECT_TRUE(is_pooled(late));
    });
}

// Cells are walked more often than what they point to is looked at.
TEST(Judge, LinksToUnwatchedNeighboursDoNotKeepAGroupAmongThem)
{
    in_program([] {
        Group cells;
        for (size_t i = 0; i < MANY; i++)
            cells.make<Cell>()->patient = static_cast<Patient *>(make_unwatched(sizeof(Patient)));
        EXPECT_TRUE(is_pooled(cells));
    });
}

// ---- lifetimes -----------------------------------------------------------------------------------------------------

TEST(Judge, ObjectsThatDieYoungAreLeftAlone)
{
    in_program([] {
        Group young;
        std::deque<void *> alive;
        for (size_t i = 0; i < MANY; i++) {
            alive.push_back(young.make(64));
            make_unwatched(48);
            if (alive.size() < 10) continue;
            heap_free(alive.front());
            alive.pop_front();
        }
        EXPECT_TRUE(is_ordinary(young, DIE_YOUNG));
        EXPECT_LT(900U, young.seen().shares.freed);
    });
}

// A look-up for each object, for a place that most of them leave at once, if not so many that the group as a whole dies young.
TEST(Judge, SoAreThoseOfWhichManyDo)
{
    in_program([] {
        Group some;
        std::deque<void *> young;
        for (size_t i = 0; i < MANY; i++) {
            void *object = some.make(64);
            make_unwatched(64);
            if (i % 3 != 0) young.push_back(object);
            if (young.size() < 20) continue;
            heap_free(young.front());
            young.pop_front();
        }
        EXPECT_TRUE(is_ordinary(some, DIE_YOUNG));
    });
}

TEST(Judge, LongLivedObjectsDoNotShareSpansWithShortLivedOnes)
{
    for (size_t alive_at_most : {size_t{500}, MANY}) {
        in_program([=] {
            Group stays, goes;
            std::deque<void *> alive;
            for (size_t i = 0; i < MANY; i++) {
                stays.make(64);
                alive.push_back(goes.make(64));
                if (alive.size() < alive_at_most) continue;
                heap_free(alive.front());
                alive.pop_front();
            }
            EXPECT_TRUE(is_pooled(stays)) << alive_at_most;
            EXPECT_NE(stays.pool(), goes.pool());
        });
    }
}

// All that live between them are freed together, again and again.
TEST(Judge, NorWithThoseThatDieInBatches)
{
    in_program([] {
        Group stays, goes;
        std::vector<void *> batch;
        for (size_t i = 0; i < MANY; i++) {
            if (i % 4 == 0) stays.make(64);
            batch.push_back(goes.make(64));
            if (batch.size() < 1590) continue;
            for (void *object : batch) heap_free(object);
            batch.clear();
        }
        EXPECT_NE(stays.pool(), goes.pool()) << stays.reason();
    });
}

TEST(Judge, TemporariesAmongLongLivedObjectsLeaveNothingToGain)
{
    in_program([] {
        Group stays, goes;
        for (size_t i = 0; i < MANY; i++) {
            stays.make(64);
            heap_free(goes.make(64));
        }
        EXPECT_TRUE(is_ordinary(stays, ALONE));
        EXPECT_TRUE(is_ordinary(goes, DIE_YOUNG));
    });
}

// Requests that point to their session, each session with some: in a server that has seen several waves of both.
TEST(Judge, LongLivedObjectsDoNotStayForTheSakeOfShortLivedOnesThatPointToThem)
{
    for (unsigned requests_each : {1U, 7U}) {
        in_program([=] {
            Group sessions, requests;
            for (size_t users = 50; users < MANY; users *= 2) {
                std::vector<Record *> waiting;
                for (size_t user = 0; user < users; user++) {
                    Record *session = sessions.make<Record>();
                    for (unsigned i = 0; i < requests_each; i++) {
                        waiting.push_back(requests.make<Record>());
                        waiting.back()->next = session;
                    }
                }
                for (Record *request : waiting) heap_free(request);
            }
            EXPECT_TRUE(is_pooled(sessions));
            EXPECT_NE(sessions.pool(), requests.pool());
        });
    }
}

// ---- thresholds ----------------------------------------------------------------------------------------------------

TEST(Judge, LargeObjectsGetNoPool)
{
    in_program([] {
        Group large;
        for (size_t i = 0; i < pool_settings.min_objects; i++) large.make(pool_settings.max_size + 1);
        EXPECT_TRUE(is_ordinary(large, "most of its objects are too large"));
        EXPECT_STREQ("max_size", judge_reason_threshold(static_cast<enum reason>(large.seen().reason)));
    });
}

TEST(Judge, AFewObjectsAreWatchedForEver)
{
    in_program([] {
        Group few;
        for (size_t i = 0; i + 1 < pool_settings.min_objects; i++) few.make(48);
        EXPECT_TRUE(has_state(few, GROUP_WATCHED));
        EXPECT_STREQ("min_objects", judge_reason_threshold(static_cast<enum reason>(few.seen().reason)));
        EXPECT_EQ(VERDICT_SLOW, group_verdict(few.number()).kind);
    });
}

TEST(Judge, WithAllEveryGroupPastTheThresholdsHasAPoolAtOnce)
{
    in_program([] {
        pool_settings.placing = POOL_PLACING_ALL;
        Group alone, several, few, large;
        for (size_t i = 0; i < pool_settings.min_objects; i++) {
            alone.make(48);
            several.make(i % 3 * 32 + 16);
            large.make(pool_settings.max_size + 1);
            if (i > 0) few.make(48);
        }
        EXPECT_TRUE(is_pooled(alone));
        EXPECT_TRUE(has_state(several, GROUP_MIXED));
        EXPECT_TRUE(has_state(few, GROUP_WATCHED));
        EXPECT_TRUE(has_state(large, GROUP_ORDINARY));
    });
}

TEST(Judge, PassingThroughAllIsDecidedAndNothingPlaced)
{
    in_program([] {
        pool_settings.placing = POOL_PLACING_NONE;
        Group kinds[2];
        for (size_t i = 0; i < MANY; i++)
            for (Group &kind : kinds) kind.make<Record>();
        for (Group &kind : kinds) {
            EXPECT_TRUE(is_pooled(kind));
            EXPECT_EQ(VERDICT_ORDINARY, group_verdict(kind.number()).kind);
        }
    });
}

TEST(Judge, APoolIsOfTheClassThatTheHeapServesTheSizeWith)
{
    in_program([] {
        heap_settings.cache_line_align = true;
        Group kinds[2];
        for (size_t i = 0; i < MANY; i++)
            for (Group &kind : kinds) kind.make<Record>();
        EXPECT_TRUE(is_pooled(kinds[0]));
        EXPECT_EQ(kinds[0].pool(), place_of(span_of_offset(space_offset(kinds[0].make<Record>()))));
    });
}

TEST(Judge, WhenThereAreNoPoolsLeftGroupsAreLeftAlone)
{
    in_program([] {
        for (uint32_t pool = 0; place_pool(&pool, 16);) continue;
        Group kinds[2];
        for (size_t i = 0; i < MANY; i++)
            for (Group &kind : kinds) kind.make<Record>();
        for (Group &kind : kinds) EXPECT_TRUE(is_ordinary(kind, "there are as many pools as there can be"));
    });
}

TEST(Judge, AVerdictIsToldToTheChainsOnce)
{
    in_program([] {
        Group kind;
        for (size_t i = 0; i < MANY; i++) kind.make<Record>();
        EXPECT_TRUE(kind.is_decided());
        uint64_t objects = kind.seen().objects;
        group_watch(kind.number(), kind.make<Record>(), sizeof(Record));
        EXPECT_EQ(objects, kind.seen().objects) << "one that comes late is not counted";
    });
}

} // namespace
