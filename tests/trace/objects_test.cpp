// Objects where a trace tells less than all of their lives, and the limits of what is kept of them.
#include "trace_file.hpp"

namespace
{

TEST(TraceObjects, ABlockThatBeginsWhereOneLivesEndsThat)
{
    TraceFile file;
    file.info()
        .events(0, {allocation(10, 0x500, 8)})
        .events(1, {allocation(20, 0x500, 80, 0, TRACE_NEW)})
        .mark(100, 90)
        .end();
    Reader reader = open_file(file);
    std::vector<Object> objects = all_objects(reader.get());
    ASSERT_EQ(objects.size(), 2);
    EXPECT_EQ(objects[0].id, 1);
    EXPECT_EQ(objects[0].died_ns, 20);
    EXPECT_EQ(objects[0].died_thread, 1);
    EXPECT_EQ(objects[0].died_kind, TRACE_NEW);
    EXPECT_EQ(objects[1].died_ns, UINT64_MAX);
    EXPECT_EQ(trace_totals(reader.get()).replaced, 1);
    const struct trace_flow *pairs;
    EXPECT_EQ(trace_flow(reader.get(), &pairs), 0);
}

TEST(TraceObjects, MoreBlocksThanThereIsMemoryForEndTheReadingWithWhatWasRead)
{
    TraceFile file;
    std::vector<trace_event> events;
    for (uint64_t i = 1; i <= 5000; i++) events.push_back(allocation(i, i * 16, 8));
    file.info().events(0, events).end();
    Reader reader = open_file(file);
    limit_live(reader.get(), 1000);
    std::vector<Object> objects = all_objects(reader.get());
    ASSERT_EQ(objects.size(), 1000);
    EXPECT_EQ(objects[999].id, 1000);
    EXPECT_EQ(trace_problems(reader.get()).error, ENOMEM);
    EXPECT_EQ(trace_totals(reader.get()).allocations, 1000);
}

// ---- the course of memory -------------------------------------------------------------------------------------------

std::vector<struct trace_memory> course(trace_reader *reader)
{
    all_objects(reader);
    const struct trace_memory *points;
    size_t count = trace_memory(reader, &points);
    return {points, points + count};
}

TEST(TraceCourse, MarksAreInItWithWhatLivedThen)
{
    TraceFile file;
    file.info()
        .events(0, {allocation(100, 0x10, 1000), allocation(2500000, 0x20, 1)})
        .mark(1200000, 1, 4096)
        .mark(9000000, 9000000, 8192)
        .end();
    std::vector<struct trace_memory> marks;
    for (const auto &point : course(open_file(file).get()))
        if (point.resident != 0) marks.push_back(point);
    ASSERT_EQ(marks.size(), 2);
    EXPECT_EQ(marks[0].ns, 1200000);
    EXPECT_EQ(marks[0].live_bytes, 1000);
    EXPECT_EQ(marks[0].resident_anonymous, 2048);
    EXPECT_EQ(marks[1].ns, 9000000);
    EXPECT_EQ(marks[1].live_bytes, 1001);
}

TEST(TraceCourse, AnHourHasNoMorePointsThanASecond)
{
    TraceFile file;
    file.info();
    uint64_t second = 1000000000;
    std::vector<trace_event> events;
    for (uint64_t i = 0; i < 100000; i++) events.push_back(allocation(i * second / 25, 0x10 * (i + 1), 1));
    for (size_t from = 0; from < events.size(); from += 10000)
        file.events(
            0, {events.begin() + static_cast<ptrdiff_t>(from), events.begin() + static_cast<ptrdiff_t>(from) + 10000});
    for (uint64_t i = 0; i < 40000; i++) file.mark(i * second / 10, i * second / 10, 4096 + i);
    std::vector<struct trace_memory> points = course(open_file(file.end()).get());
    size_t marks = 0;
    for (size_t i = 1; i < points.size(); i++) {
        ASSERT_LE(points[i - 1].ns, points[i].ns);
        ASSERT_LE(points[i].live_objects, points[i].ns * 25 / second + 1);
        ASSERT_GE(points[i].live_objects + 1,
                  points[i].ns * 25 / second > 100000 ? 100000 : points[i].ns * 25 / second);
        marks += points[i].resident != 0;
    }
    EXPECT_LE(points.size(), 1 << 16);
    EXPECT_GT(points.size(), 1 << 14);
    EXPECT_GT(marks, 1 << 12);
}

} // namespace
