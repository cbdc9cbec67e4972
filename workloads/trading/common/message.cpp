// Messages: fields, and their form on a socket.
#include "common/message.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trading
{

namespace
{

enum class Type : std::uint8_t { number = 1, text };

template <typename Plain> void put(std::string &frame, Plain value)
{
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    frame.append(bytes, sizeof value);
}

// Takes plain values and texts off the front of a frame's content.
class Reader
{
  public:
    explicit Reader(std::string_view content) : left_(content) {}

    bool at_end() const
    {
        return left_.empty();
    }

    template <typename Plain> Plain take()
    {
        Plain value;
        std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
        return value;
    }

    std::string_view bytes(std::size_t size)
    {
        if (size > left_.size()) throw BadMessage("a message is cut short");
        std::string_view taken = left_.substr(0, size);
        left_.remove_prefix(size);
        return taken;
    }

  private:
    std::string_view left_;
};

class Number final : public Field
{
  public:
    Number(Tag tag, std::int64_t value) : Field(tag), value_(value) {}

    std::unique_ptr<Field> clone() const override
    {
        return std::make_unique<Number>(tag(), value_);
    }
    std::int64_t number() const override
    {
        return value_;
    }
    void encode(std::string &frame) const override
    {
        put(frame, tag());
        put(frame, Type::number);
        put(frame, value_);
    }

  private:
    std::int64_t value_;
};

class Text final : public Field
{
  public:
    Text(Tag tag, std::string value) : Field(tag), value_(std::move(value)) {}

    std::unique_ptr<Field> clone() const override
    {
        return std::make_unique<Text>(tag(), value_);
    }
    const std::string &text() const override
    {
        return value_;
    }
    void encode(std::string &frame) const override
    {
        put(frame, tag());
        put(frame, Type::text);
        put(frame, static_cast<std::uint32_t>(value_.size()));
        frame += value_;
    }

  private:
    std::string value_;
};

std::string name_of(Tag tag)
{
    return "field " + std::to_string(static_cast<int>(tag));
}

std::unique_ptr<Field> decode_field(Reader &reader)
{
    const Tag tag = reader.take<Tag>();
    switch (reader.take<Type>()) {
    case Type::number:
        return std::make_unique<Number>(tag, reader.take<std::int64_t>());
    case Type::text:
        return std::make_unique<Text>(tag, std::string(reader.bytes(reader.take<std::uint32_t>())));
    }
    throw BadMessage(name_of(tag) + " has no known type");
}

} // namespace

std::int64_t Field::number() const
{
    throw BadMessage(name_of(tag_) + " is not a number");
}

const std::string &Field::text() const
{
    throw BadMessage(name_of(tag_) + " is not a text");
}

const Field *Message::find(Tag tag) const
{
    const auto has_tag = [tag](const std::unique_ptr<Field> &field) { return field->tag() == tag; };
    const auto found = std::find_if(fields_.begin(), fields_.end(), has_tag);
    return found == fields_.end() ? nullptr : found->get();
}

const Field &Message::get(Tag tag) const
{
    const Field *field = find(tag);
    if (field == nullptr) throw BadMessage(name_of(tag) + " is missing");
    return *field;
}

void Message::add(Tag tag, std::int64_t number)
{
    fields_.push_back(std::make_unique<Number>(tag, number));
}

void Message::add(Tag tag, std::string text)
{
    fields_.push_back(std::make_unique<Text>(tag, std::move(text)));
}

void Message::remove(Tag tag)
{
    fields_.remove_if([tag](const std::unique_ptr<Field> &field) { return field->tag() == tag; });
}

MessagePtr Message::clone() const
{
    auto copy = std::make_unique<Message>(kind_);
    for (const auto &field : fields_) copy->fields_.push_back(field->clone());
    return copy;
}

void Message::encode(std::string &frames) const
{
    const std::size_t start = frames.size();
    put(frames, std::uint32_t{0});
    put(frames, kind_);
    for (const auto &field : fields_) field->encode(frames);
    const auto length = static_cast<std::uint32_t>(frames.size() - start - sizeof(std::uint32_t));
    std::memcpy(&frames[start], &length, sizeof length);
}

MessagePtr Message::decode(std::string_view content)
{
    Reader reader(content);
    auto message = std::make_unique<Message>(reader.take<Kind>());
    while (!reader.at_end()) message->fields_.push_back(decode_field(reader));
    return message;
}

} // namespace trading
