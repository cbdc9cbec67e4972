// The journal's database and its writer.
#include "data/journal.h"

#include <cstdlib>
#include <iostream>
#include <sqlite3.h>
#include <stdexcept>

namespace trading
{

namespace
{

// No fsync: a disk's pace is not what a study of allocators wants to know. The pages, the log and
// their checkpoints are SQLite's own as ever.
constexpr char schema[] = R"(
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE execution (
  id TEXT PRIMARY KEY, order_id TEXT NOT NULL, session TEXT NOT NULL, name TEXT NOT NULL,
  account TEXT NOT NULL, symbol TEXT NOT NULL, side TEXT NOT NULL, execution TEXT NOT NULL,
  status TEXT NOT NULL, price INTEGER NOT NULL, quantity INTEGER NOT NULL,
  last_price INTEGER NOT NULL, last_quantity INTEGER NOT NULL, reason TEXT) WITHOUT ROWID;
CREATE INDEX execution_by_order ON execution (order_id);
)";

constexpr char insertion[] = "INSERT INTO execution VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

// Binds the values of one row from left to right. The texts live until the row is written.
class Row
{
  public:
    explicit Row(sqlite3_stmt *statement) : statement_(statement) {}

    Row &operator<<(const std::string &text)
    {
        sqlite3_bind_text(statement_, ++column_, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
        return *this;
    }

    Row &operator<<(const char &letter)
    {
        sqlite3_bind_text(statement_, ++column_, &letter, 1, SQLITE_STATIC);
        return *this;
    }

    Row &operator<<(std::int64_t number)
    {
        sqlite3_bind_int64(statement_, ++column_, number);
        return *this;
    }

  private:
    sqlite3_stmt *statement_;
    int column_ = 0;
};

} // namespace

void Journal::Close::operator()(sqlite3 *database) const
{
    sqlite3_close(database);
}

void Journal::Close::operator()(sqlite3_stmt *statement) const
{
    sqlite3_finalize(statement);
}

Journal::Journal(const std::string &path, Send send) : send_(std::move(send))
{
    sqlite3 *database = nullptr;
    const int opened = sqlite3_open(path.c_str(), &database);
    database_.reset(database);
    if (opened != SQLITE_OK) throw std::runtime_error("journal: cannot open " + path);
    execute(schema);
    sqlite3_stmt *statement = nullptr;
    if (sqlite3_prepare_v2(database, insertion, -1, &statement, nullptr) != SQLITE_OK)
        throw std::runtime_error(std::string("journal: ") + sqlite3_errmsg(database));
    insertion_.reset(statement);
    writer_ = std::make_unique<Worker<Outcome>>([this](std::list<Outcome> outcomes) { write(std::move(outcomes)); });
}

void Journal::execute(const char *sql)
{
    if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK)
        throw std::runtime_error(std::string("journal: ") + sqlite3_errmsg(database_.get()));
}

void Journal::write(std::list<Outcome> outcomes)
try {
    execute("BEGIN");
    for (const Outcome &outcome : outcomes)
        for (const auto &entry : outcome.entries) insert(*entry);
    execute("COMMIT");
    for (Outcome &outcome : outcomes)
        for (MessagePtr &message : outcome.messages) send_(std::move(message));
} catch (const std::runtime_error &error) {
    std::cerr << "trading-data: " << error.what() << '\n';
    std::_Exit(EXIT_FAILURE);
}

void Journal::insert(const Outcome::Entry &entry)
{
    sqlite3_stmt *statement = insertion_.get();
    Row(statement) << entry.execution_id << entry.order_id << entry.session << entry.name << entry.account
                   << entry.symbol << entry.side << entry.execution << entry.status << entry.price << entry.quantity
                   << entry.last_price << entry.last_quantity << entry.reason;
    const int stepped = sqlite3_step(statement);
    sqlite3_reset(statement);
    if (stepped != SQLITE_DONE) throw std::runtime_error(std::string("journal: ") + sqlite3_errmsg(database_.get()));
}

} // namespace trading
