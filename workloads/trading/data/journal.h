// The journal: every order and every execution in an SQLite database, written before anybody is told.
//
// What comes out of one incoming message is an Outcome. Outcomes that wait are written as one
// transaction; then their messages go out, in the order in which the outcomes came.
#pragma once

#include "common/message.h"
#include "common/worker.h"

#include <functional>
#include <list>
#include <memory>
#include <string>

struct sqlite3;
struct sqlite3_stmt;

namespace trading
{

struct Outcome {
    struct Entry {
        std::string execution_id;
        std::string order_id;
        std::string session;
        std::string name;
        std::string account;
        std::string symbol;
        char side;
        char execution;
        char status;
        std::int64_t price;
        std::int64_t quantity;
        std::int64_t last_price;
        std::int64_t last_quantity;
        std::string reason;
    };
    std::list<std::unique_ptr<Entry>> entries;
    std::list<MessagePtr> messages;
};

class Journal
{
  public:
    using Send = std::function<void(MessagePtr)>;

    // Throws std::runtime_error if the database cannot be made. A database that fails later ends the
    // process: without its journal the middleware must not go on.
    Journal(const std::string &path, Send send);
    ~Journal()
    {
        finish();
    }

    void push(Outcome outcome)
    {
        writer_->push(std::move(outcome));
    }
    void finish()
    {
        writer_->finish();
    }

  private:
    struct Close {
        void operator()(sqlite3 *database) const;
        void operator()(sqlite3_stmt *statement) const;
    };

    void execute(const char *sql);
    void write(std::list<Outcome> outcomes);
    void insert(const Outcome::Entry &entry);

    Send send_;
    std::unique_ptr<sqlite3, Close> database_;
    std::unique_ptr<sqlite3_stmt, Close> insertion_;
    std::unique_ptr<Worker<Outcome>> writer_; // last: it uses the others
};

} // namespace trading
