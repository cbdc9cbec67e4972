// Translation, message by message.
#include "gateway/translate.h"

#include "common/fix_settings.h"
#include "common/fix_values.h"

namespace trading
{

namespace
{

constexpr char all_symbols[] = "*";

// Adds a FIX field of `message` to `to`, as the text that it is.
template <typename FixField> void add_text(Message &to, Tag tag, const FIX::Message &message)
{
    to.add(tag, message.getField(FixField().getTag()));
}

template <typename FixField> void add_letter(Message &to, Tag tag, const FIX::Message &message)
{
    FixField field;
    message.getField(field);
    to.add(tag, static_cast<std::int64_t>(field.getValue()));
}

void add_quantity(Message &to, const FIX::Message &message)
{
    FIX::OrderQty quantity;
    message.getField(quantity);
    to.add(Tag::quantity, std::llround(quantity.getValue()));
}

void add_order(Message &to, const FIX::Message &message)
{
    add_text<FIX::ClOrdID>(to, Tag::order, message);
    add_text<FIX::Account>(to, Tag::account, message);
    add_text<FIX::Symbol>(to, Tag::symbol, message);
    add_letter<FIX::Side>(to, Tag::side, message);
}

void add_new_order(Message &to, const FIX::Message &message)
{
    add_order(to, message);
    add_quantity(to, message);
    add_letter<FIX::OrdType>(to, Tag::order_type, message);
    FIX::Price price;
    if (message.getFieldIfSet(price)) to.add(Tag::price, to_cents(price.getValue()));
}

char letter(const Message &message, Tag tag)
{
    return static_cast<char>(message.number(tag));
}

double quantity(const Message &message, Tag tag)
{
    return static_cast<double>(message.number(tag));
}

double average_price(const Message &message)
{
    const std::int64_t cumulative = message.number(Tag::cumulative);
    return cumulative == 0 ? 0.0 : to_fix(message.number(Tag::value)) / static_cast<double>(cumulative);
}

FIX::Message report(const Message &message)
{
    FIX44::ExecutionReport report(
        FIX::OrderID(message.text(Tag::order_id)), FIX::ExecID(message.text(Tag::execution_id)),
        FIX::ExecType(letter(message, Tag::execution_type)), FIX::OrdStatus(letter(message, Tag::status)),
        FIX::Side(letter(message, Tag::side)), FIX::LeavesQty(quantity(message, Tag::leaves)),
        FIX::CumQty(quantity(message, Tag::cumulative)), FIX::AvgPx(average_price(message)));
    report.set(FIX::ClOrdID(message.text(Tag::order)));
    report.set(FIX::Account(message.text(Tag::account)));
    report.set(FIX::Symbol(message.text(Tag::symbol)));
    report.set(FIX::OrderQty(quantity(message, Tag::quantity)));
    report.set(FIX::Price(to_fix(message.number(Tag::price))));
    report.set(FIX::LastQty(quantity(message, Tag::last_quantity)));
    report.set(FIX::LastPx(to_fix(message.number(Tag::last_price))));
    report.set(FIX::TransactTime());
    if (message.has(Tag::original)) report.set(FIX::OrigClOrdID(message.text(Tag::original)));
    if (message.has(Tag::reason)) report.set(FIX::Text(message.text(Tag::reason)));
    return report;
}

FIX::Message cancel_reject(const Message &message)
{
    return FIX44::OrderCancelReject(FIX::OrderID("NONE"), FIX::ClOrdID(message.text(Tag::order)),
                                    FIX::OrigClOrdID(message.text(Tag::original)),
                                    FIX::OrdStatus(letter(message, Tag::status)),
                                    FIX::CxlRejResponseTo(FIX::CxlRejResponseTo_ORDER_CANCEL_REQUEST));
}

FIX::Message subscribed()
{
    FIX44::MarketDataSnapshotFullRefresh snapshot;
    snapshot.set(FIX::Symbol(all_symbols));
    return snapshot;
}

void add_entry(FIX::Message &snapshot, char type, double price, double size)
{
    FIX44::MarketDataSnapshotFullRefresh::NoMDEntries group;
    group.set(FIX::MDEntryType(type));
    group.set(FIX::MDEntryPx(price));
    group.set(FIX::MDEntrySize(size));
    snapshot.addGroup(group);
}

FIX::Message depth(const Message &message)
{
    FIX44::MarketDataSnapshotFullRefresh snapshot;
    snapshot.set(FIX::Symbol(message.text(Tag::symbol)));
    snapshot.set(FIX::MDReqID(std::to_string(message.number(Tag::sequence))));
    add_entry(snapshot, FIX::MDEntryType_TRADE, to_fix(message.number(Tag::last_price)),
              quantity(message, Tag::last_quantity));
    const auto &fields = message.fields();
    for (auto field = fields.begin(); field != fields.end(); ++field) {
        if ((*field)->tag() != Tag::level_side) continue;
        const bool buys = (*field)->number() == side::buy;
        const std::int64_t price = (*++field)->number();
        const std::int64_t size = (*++field)->number();
        add_entry(snapshot, buys ? FIX::MDEntryType_BID : FIX::MDEntryType_OFFER, to_fix(price),
                  static_cast<double>(size));
    }
    return snapshot;
}

} // namespace

MessagePtr from_fix(const FIX::Message &message, const std::string &session)
{
    const std::string &type = message.getHeader().getField(FIX::FIELD::MsgType);
    MessagePtr made;
    if (type == FIX::MsgType_NewOrderSingle) {
        made = std::make_unique<Message>(Kind::new_order);
        add_new_order(*made, message);
    } else if (type == FIX::MsgType_OrderCancelRequest) {
        made = std::make_unique<Message>(Kind::cancel);
        add_order(*made, message);
        add_text<FIX::OrigClOrdID>(*made, Tag::original, message);
    } else if (type == FIX::MsgType_MarketDataRequest) {
        made = std::make_unique<Message>(Kind::subscribe);
    } else {
        throw FIX::UnsupportedMessageType(type);
    }
    made->add(Tag::session, session);
    return made;
}

FIX::Message to_fix(const Message &message)
{
    switch (message.kind()) {
    case Kind::report:
        return report(message);
    case Kind::cancel_reject:
        return cancel_reject(message);
    case Kind::subscribed:
        return subscribed();
    case Kind::depth:
        return depth(message);
    default:
        throw BadMessage("nothing that a broker is told");
    }
}

} // namespace trading
