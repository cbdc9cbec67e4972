// JSON as RapidJSON reads it; what is not there, or is of another kind, fails the test.
#ifndef HEAPFIT_TESTS_JSON_H
#define HEAPFIT_TESTS_JSON_H

#include "system.h"

#define RAPIDJSON_ASSERT(is_true)                                                                                      \
    if (!(is_true)) throw std::runtime_error(#is_true)
#define RAPIDJSON_NOEXCEPT // an assertion throws
#include <rapidjson/document.h>

inline rapidjson::Document parse_json(const std::string &text)
{
    rapidjson::Document document;
    if (document.Parse(text.data(), text.size()).HasParseError()) throw std::runtime_error("no JSON: " + text);
    return document;
}

#endif
