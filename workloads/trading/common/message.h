// What the three processes say to each other: a message of a kind with tagged fields, as objects in
// memory and as a frame on a socket.
//
// A frame is a 32-bit length of what follows, the kind (a byte), and the fields: tag (16 bits), type
// (a byte), then eight bytes of a number, or a 32-bit length and the bytes of a text. Everything is in
// the machine's own byte order: both ends are on one machine.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trading
{

enum class Kind : std::uint8_t {
    subscribe = 1, // a session wants market data; the answer is a `subscribed`
    subscribed,
    new_order,
    cancel,
    report,
    cancel_reject,
    depth, // the best prices of a symbol, for whoever has subscribed
};

enum class Tag : std::uint16_t {
    session = 1, // whose message this is: the broker's FIX identity
    sequence,    // counts a session's messages, from 1
    partition,   // the group of symbols that an order belongs to
    order,       // the broker's name of an order
    original,    // the broker's name of the order to cancel
    order_id,    // ours
    execution_id,
    account,
    symbol,
    side,
    order_type,
    execution_type,
    status,
    price,
    quantity,
    last_price,
    last_quantity,
    leaves,
    cumulative,
    value, // sum of price times quantity of all executions so far
    reason,
    level_side,
    level_price,
    level_quantity,
};

// A message that does not have the form described above, or lacks a field.
class BadMessage : public std::runtime_error
{
  public:
    using std::runtime_error::runtime_error;
};

class Field
{
  public:
    explicit Field(Tag tag) : tag_(tag) {}
    virtual ~Field() = default;
    Field(const Field &) = delete;
    Field &operator=(const Field &) = delete;

    Tag tag() const
    {
        return tag_;
    }
    virtual std::unique_ptr<Field> clone() const = 0;
    virtual void encode(std::string &frame) const = 0;
    virtual std::int64_t number() const;
    virtual const std::string &text() const;

  private:
    Tag tag_;
};

class Message
{
  public:
    using Fields = std::list<std::unique_ptr<Field>>;

    explicit Message(Kind kind) : kind_(kind) {}

    Kind kind() const
    {
        return kind_;
    }
    const Fields &fields() const
    {
        return fields_;
    }
    bool has(Tag tag) const
    {
        return find(tag) != nullptr;
    }
    std::int64_t number(Tag tag) const
    {
        return get(tag).number();
    }
    const std::string &text(Tag tag) const
    {
        return get(tag).text();
    }

    // Adds a field behind the others. Of several with one tag, the first is the one that is found.
    void add(Tag tag, std::int64_t number);
    void add(Tag tag, std::string text);
    // Adds a copy of another message's field.
    void copy(const Message &from, Tag tag)
    {
        fields_.push_back(from.get(tag).clone());
    }
    void remove(Tag tag);

    std::unique_ptr<Message> clone() const;

    // Appends the frame to `frames`.
    void encode(std::string &frames) const;
    // Makes a message of a frame's content, without its length.
    static std::unique_ptr<Message> decode(std::string_view content);

  private:
    const Field *find(Tag tag) const;
    const Field &get(Tag tag) const;

    Kind kind_;
    Fields fields_;
};

using MessagePtr = std::unique_ptr<Message>;

} // namespace trading
