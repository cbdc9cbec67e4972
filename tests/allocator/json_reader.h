// JSON, read strictly (RFC 8259), as far as heapfit writes it: objects, arrays, strings, numbers of whole thousandths, true,
// false and null.
#ifndef HEAPFIT_TESTS_JSON_READER_H
#define HEAPFIT_TESTS_JSON_READER_H

#include "system.h"
#include <cctype>

namespace json
{

struct Value {
    enum Kind { OBJECT, ARRAY, STRING, NUMBER, BOOL, NOTHING } kind = OBJECT;
    std::map<std::string, Value> members;
    std::vector<Value> elements;
    std::string text;
    int64_t number = 0; // without its fraction
    unsigned thousandths = 0; // that
    bool truth = false;

    const Value &operator[](const std::string &name) const
    {
        auto found = members.find(name);
        if (found == members.end()) throw std::runtime_error("no member " + name);
        return found->second;
    }
    bool has(const std::string &name) const
    {
        return members.count(name) != 0;
    }
};

class Reader
{
  public:
    explicit Reader(const std::string &text) : text_(text) {}

    Value all()
    {
        Value value = next();
        if (at_ != text_.size()) fail("something follows");
        return value;
    }

  private:
    const std::string &text_;
    size_t at_ = 0;

    [[noreturn]] void fail(const std::string &why) const
    {
        throw std::runtime_error(why + " at " + std::to_string(at_) + " of " + text_);
    }
    bool take(const std::string &word)
    {
        if (text_.compare(at_, word.size(), word) != 0) return false;
        at_ += word.size();
        return true;
    }
    void expect(const std::string &word)
    {
        if (!take(word)) fail("no " + word);
    }

    Value next()
    {
        Value value;
        if (take("{")) read_object(value);
        else if (take("[")) read_array(value);
        else if (take("\"")) value.kind = Value::STRING, value.text = rest_of_string();
        else if (take("true")) value.kind = Value::BOOL, value.truth = true;
        else if (take("false")) value.kind = Value::BOOL;
        else if (take("null")) value.kind = Value::NOTHING;
        else value.kind = Value::NUMBER, value.number = number(), value.thousandths = fraction();
        return value;
    }
    void read_object(Value &value)
    {
        value.kind = Value::OBJECT;
        if (take("}")) return;
        do {
            expect("\"");
            std::string name = rest_of_string();
            expect(":");
            if (!value.members.emplace(name, next()).second) fail(name + " stands there twice");
        } while (take(","));
        expect("}");
    }
    void read_array(Value &value)
    {
        value.kind = Value::ARRAY;
        if (take("]")) return;
        do value.elements.push_back(next());
        while (take(","));
        expect("]");
    }
    std::string rest_of_string()
    {
        std::string result;
        while (!take("\"")) {
            if (at_ == text_.size() || static_cast<unsigned char>(text_[at_]) < ' ') fail("the string does not end");
            if (take("\\") && text_[at_] != '"' && text_[at_] != '\\') fail("an escape that is not expected");
            result += text_[at_++];
        }
        return result;
    }
    unsigned fraction()
    {
        if (!take(".")) return 0;
        unsigned result = 0;
        for (int digit = 0; digit < 3; digit++) {
            if (at_ == text_.size() || isdigit(static_cast<unsigned char>(text_[at_])) == 0) fail("no thousandths");
            result = result * 10 + static_cast<unsigned>(text_[at_++] - '0');
        }
        return result;
    }
    int64_t number()
    {
        size_t start = at_;
        take("-");
        size_t digits = at_;
        while (at_ < text_.size() && isdigit(static_cast<unsigned char>(text_[at_])) != 0) at_++;
        if (at_ == digits || (text_[digits] == '0' && at_ > digits + 1)) fail("no value");
        return static_cast<int64_t>(std::stoull(text_.substr(digits, at_ - digits))) * (start == digits ? 1 : -1);
    }
};

inline Value read(const std::string &text)
{
    return Reader(text).all();
}

} // namespace json

#endif
