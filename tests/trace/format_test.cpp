// The example of docs/trace-format.md is what the page says it is.
#include "trace_file.hpp"

#include <fstream>
#include <sstream>

namespace
{

// The bytes of the page's block in hexadecimal; what follows a # is for people.
std::vector<uint8_t> example()
{
    std::ifstream page(HEAPFIT_TRACE_FORMAT);
    std::vector<uint8_t> bytes;
    bool inside = false;
    for (std::string line; std::getline(page, line);) {
        if (line.rfind("```", 0) == 0) inside = line == "```hex";
        else if (inside) {
            std::istringstream words(line.substr(0, line.find('#')));
            for (std::string word; words >> word;) bytes.push_back(static_cast<uint8_t>(std::stoul(word, nullptr, 16)));
        }
    }
    return bytes;
}

TEST(TraceFormat, TheDocumentedExampleIsReadAsItIsExplained)
{
    std::string why;
    Reader reader = open_bytes(example(), &why);
    ASSERT_NE(reader, nullptr) << why;
    std::vector<Event> events = all_events(reader.get());
    std::vector<Event> expected = {
        {500, 0x55d0c2a412a0, 0, 24, 24, 0, 0, 0, TRACE_MALLOC, 0},
        {540, 0x55d0c2a412c0, 0, 20, 24, 0, 0, 0, TRACE_MALLOC, 0},
        {600, 0x55d0c2a412a0, 0, 0, 0, 0, 0, 0, TRACE_FREE, 0},
    };
    EXPECT_EQ(events, expected);
    EXPECT_STREQ(trace_info(reader.get()), R"({"pid": 7, "ticks_per_second_guess": 1000000000})");
    EXPECT_STREQ(trace_end(reader.get()), R"({"reason": "exit"})");
    const struct trace_mark *marks;
    ASSERT_EQ(trace_marks(reader.get(), &marks), 1);
    EXPECT_EQ(marks[0].monotonic_ns, 81600);
    EXPECT_EQ(marks[0].resident, 2 << 20);
    EXPECT_EQ(trace_problems(reader.get()).damaged_bytes, 0);
}

TEST(TraceFormat, TheEncoderWritesTheExamplesEvents)
{
    std::vector<uint8_t> bytes = example();
    std::string text(bytes.begin(), bytes.end());
    trace_event second = allocation(1540, 0x55d0c2a412c0, 20);
    second.usable = 24;
    trace_event first = allocation(1500, 0x55d0c2a412a0, 24);
    first.usable = 24;
    EXPECT_NE(text.find(TraceFile::encoded({first, second, release(1600, 0x55d0c2a412a0)})), std::string::npos);
}

} // namespace
