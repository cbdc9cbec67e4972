// The control channel: what other processes can ask of one, and what they cannot do to it.

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "heapfit/heapfit.h"
#include "json.h"
#include "stress_seed.h"
#include "system.h"

namespace
{

constexpr int patience_ms = 60000; // for what comes at once unless the machine is very busy
[[maybe_unused]] constexpr uid_t nobody = 65534; // in the full run

std::pair<sockaddr_un, socklen_t> address_of(pid_t pid)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string name = "heapfit/" + std::to_string(pid);
    memcpy(address.sun_path + 1, name.data(), name.size());
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

// A connection to a process; closed() when it could not be made.
class Client
{
  public:
    explicit Client(pid_t pid) : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        auto [address, size] = address_of(pid);
        if (connect(socket_, reinterpret_cast<sockaddr *>(&address), size) != 0) hang_up();
    }
    ~Client()
    {
        hang_up();
    }
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;

    bool closed() const
    {
        return socket_ < 0;
    }
    void hang_up()
    {
        if (socket_ >= 0) close(socket_);
        socket_ = -1;
    }
    bool say(const std::string &bytes) const
    {
        return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
    }
    // A line without its end; empty when the other side has closed, or does not answer.
    std::string hear()
    {
        char chunk[4096];
        while (heard_.find('\n') == std::string::npos) {
            pollfd polled{socket_, POLLIN, 0};
            if (poll(&polled, 1, patience_ms) <= 0) return "";
            ssize_t received = recv(socket_, chunk, sizeof chunk, 0);
            if (received <= 0) return "";
            heard_.append(chunk, static_cast<size_t>(received));
        }
        size_t end = heard_.find('\n');
        std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
    }
    std::string ask(const std::string &request)
    {
        return say(request + "\n") ? hear() : "";
    }

  private:
    int socket_;
    std::string heard_;
};

std::string ask(pid_t pid, const std::string &request)
{
    return Client(pid).ask(request);
}

// The program that is steered, until this object ends. What it writes to stderr is kept.
class Subject
{
  public:
    explicit Subject(const char *what = "wait", const char *options = "control:on", bool by_squatter = false,
                     const char *program = HEAPFIT_CONTROL_SUBJECT)
    {
        int in[2], out[2], start[2];
        if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(start, O_CLOEXEC) != 0) abort();
        errors_ = memfd_create("stderr", MFD_CLOEXEC);
        pid_ = fork();
        if (pid_ == 0) {
            char go;
            dup2(in[0], STDIN_FILENO);
            dup2(out[1], STDOUT_FILENO);
            dup2(errors_, STDERR_FILENO);
            setenv("HEAPFIT_OPTIONS", options, 1);
            setenv("TSAN_OPTIONS", "suppressions=" HEAPFIT_TSAN_SUPPRESSIONS, 1);
            if (read(start[0], &go, 1) == 1) execl(program, program, what, nullptr);
            _exit(127);
        }
        close(in[0]);
        close(out[1]);
        if (by_squatter) take_name();
        if (write(start[1], "g", 1) != 1) abort();
        close(start[0]);
        close(start[1]);
        to_ = in[1];
        from_ = out[0];
    }
    ~Subject()
    {
        end();
        close(errors_);
    }
    Subject(const Subject &) = delete;
    Subject &operator=(const Subject &) = delete;

    pid_t pid() const
    {
        return pid_;
    }
    // The number that the next process says to be ready: this one's, or of a child of its.
    pid_t ready()
    {
        std::string line;
        char byte;
        while (read(from_, &byte, 1) == 1 && byte != '\n') line += byte;
        EXPECT_EQ(line.compare(0, 6, "ready "), 0) << line << errors();
        return line.size() > 6 ? std::stoi(line.substr(6)) : 0;
    }
    // Lets it end and returns how: the status that waitpid reports, 0 when all was well.
    int end()
    {
        if (pid_ <= 0) return -1;
        int status = -1;
        close(to_);
        char chunk[256];
        ssize_t size;
        while ((size = read(from_, chunk, sizeof chunk)) > 0) last_words_.append(chunk, static_cast<size_t>(size));
        waitpid(pid_, &status, 0);
        close(from_);
        if (squatter_ >= 0) close(squatter_);
        pid_ = -1;
        return status;
    }
    // After its end: what it wrote to stdout since it was ready.
    const std::string &last_words() const
    {
        return last_words_;
    }
    std::string errors() const
    {
        std::string text(4096, '\0');
        ssize_t size = pread(errors_, text.data(), text.size(), 0);
        text.resize(size > 0 ? static_cast<size_t>(size) : 0);
        return text;
    }

  private:
    void take_name()
    {
        auto [address, size] = address_of(pid_);
        squatter_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(bind(squatter_, reinterpret_cast<sockaddr *>(&address), size), 0);
    }

    pid_t pid_;
    int to_ = -1, from_ = -1, errors_ = -1, squatter_ = -1;
    std::string last_words_;
};

// The channel is open a moment after the process has started.
void wait_until_listening(pid_t pid)
{
    for (int i = 0; i < patience_ms && Client(pid).closed(); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_FALSE(Client(pid).closed());
}

class Control : public testing::Test
{
  protected:
    void listen_to(const char *what)
    {
        subject = std::make_unique<Subject>(what);
        ASSERT_EQ(subject->ready(), subject->pid());
        wait_until_listening(subject->pid());
    }
    void SetUp() override
    {
        listen_to("wait");
    }
    void TearDown() override
    {
        if (subject == nullptr) return;
        EXPECT_EQ(subject->end(), 0) << subject->errors();
        EXPECT_EQ(subject->errors(), "");
    }
    pid_t pid() const
    {
        return subject->pid();
    }
    std::unique_ptr<Subject> subject;
};

class ControlOfBusyThreads : public Control
{
  protected:
    void SetUp() override
    {
        listen_to("busy");
    }
};

} // namespace

TEST_F(Control, GetsAndSetsOptions)
{
    Client client(pid());
    EXPECT_EQ(client.ask("get decay_ms"), R"({"ok":true,"name":"decay_ms","value":"500"})");
    EXPECT_EQ(client.ask("set decay_ms 7"), R"({"ok":true,"name":"decay_ms","value":"7"})");
    EXPECT_EQ(client.ask("set decay_ms unlimited"), R"({"ok":true,"name":"decay_ms","value":"unlimited"})");
    EXPECT_EQ(ask(pid(), "get decay_ms"), R"({"ok":true,"name":"decay_ms","value":"unlimited"})");
    EXPECT_EQ(client.ask("set thread_span_threshold 128k"),
              R"({"ok":true,"name":"thread_span_threshold","value":"131072"})");
}

TEST_F(Control, TellsTheLedger)
{
    rapidjson::Document answer = parse_json(ask(pid(), "ledger"));
    ASSERT_TRUE(answer["ok"].GetBool());
    std::map<std::string, int64_t> resident;
    for (const rapidjson::Value &row : answer["ledger"].GetArray()) {
        resident[row["cause"].GetString()] += row["resident"].GetInt64();
        EXPECT_GE(row["heap"].GetInt64(), -1);
        EXPECT_TRUE(row.HasMember("name") && row.HasMember("thread") && row.HasMember("swapped") &&
                    row.HasMember("in_heap"));
    }
    EXPECT_GT(resident["tables"], 0);
    EXPECT_GT(resident["file"], 0);
}

#ifdef HEAPFIT_TEST_FULL // only root can be another user
TEST_F(Control, IsRefusedToOtherUsers)
{
    if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
    pid_t child = fork();
    if (child == 0) {
        if (setresuid(nobody, nobody, nobody) != 0) _exit(2);
        Client client(pid());
        bool refused = client.hear() == R"({"ok":false,"error":"this process belongs to another user"})";
        client.say("set decay_ms 1\n");
        _exit(refused && client.hear().empty() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(ask(pid(), "get decay_ms"), R"({"ok":true,"name":"decay_ms","value":"500"})");
}
#endif

TEST(ControlOff, IsTheDefault)
{
    Subject subject("wait", "");
    ASSERT_EQ(subject.ready(), subject.pid());
    EXPECT_TRUE(Client(subject.pid()).closed());
}

TEST(ControlOfForks, BelongsToEachProcess)
{
    if (HEAPFIT_TEST_SANITIZED) GTEST_SKIP() << "sanitizers start no threads after a fork among threads";
    if (HEAPFIT_TEST_EMULATED) GTEST_SKIP() << "the emulator does not survive a fork among threads";
    Subject subject("forking");
    pid_t first = subject.ready(), second = subject.ready();
    ASSERT_NE(first, second);
    for (pid_t pid : {first, second}) {
        wait_until_listening(pid);
        rapidjson::Document answer = parse_json(ask(pid, "stats"));
        EXPECT_EQ(answer["stats"]["pid"].GetInt(), pid);
        EXPECT_EQ(answer["stats"]["heaps"][1]["thread"].GetInt(), pid);
    }
    pid_t child = first == subject.pid() ? second : first, parent = subject.pid();
    ask(child, "set decay_ms 7");
    EXPECT_EQ(ask(parent, "get decay_ms"), R"({"ok":true,"name":"decay_ms","value":"500"})");
    EXPECT_EQ(subject.end(), 0) << subject.errors();
    EXPECT_TRUE(Client(parent).closed());
    EXPECT_TRUE(Client(child).closed());
}

TEST(ControlOfThreads, DoesNotKeepAProcessAliveWhoseMainThreadHasLeft)
{
    if (HEAPFIT_TEST_SANITIZED) GTEST_SKIP() << "the sanitizer's own thread keeps it alive";
    Subject subject("leaving");
    subject.ready();
    EXPECT_EQ(subject.end(), 0); // waits for it
    EXPECT_EQ(subject.last_words(), "written at the end");
}

TEST(ControlTaken, IsSaidOnceAndTheProgramGoesOn)
{
    Subject subject("wait", "control:on", true);
    ASSERT_EQ(subject.ready(), subject.pid());
    std::string expected = "heapfit: no control: the socket @heapfit/" + std::to_string(subject.pid()) +
                           " is taken by another heap of this process, or by another process\n";
    for (int i = 0; i < patience_ms && subject.errors() != expected; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(subject.errors(), expected);
    EXPECT_EQ(subject.end(), 0);
}

#ifdef HEAPFIT_TEST_FULL
TEST(ControlOfPrivilegedPrograms, IsOff)
{
    if (HEAPFIT_TEST_SANITIZED) GTEST_SKIP() << "sanitizers look at their process by means that such a one has not";
    if (HEAPFIT_TEST_EMULATED) GTEST_SKIP() << "the emulator gives a program no other rights";
    if (geteuid() != 0) GTEST_SKIP() << "only root can make a program that runs with other rights";
    char folder[] = "/tmp/heapfit-control-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    std::string program = std::string(folder) + "/subject";
    ASSERT_EQ(system(("cp " HEAPFIT_CONTROL_SUBJECT " " + program).c_str()), 0);
    EXPECT_EQ(chmod(folder, 0755), 0);
    EXPECT_EQ(chown(program.c_str(), nobody, nobody), 0);
    EXPECT_EQ(chmod(program.c_str(), 04755), 0);
    {
        Subject subject("wait", "control:on,verbose:1", false, program.c_str());
        ASSERT_EQ(subject.ready(), subject.pid()) << "is " << folder << " mounted nosuid?";
        EXPECT_TRUE(Client(subject.pid()).closed());
        EXPECT_EQ(subject.end(), 0);
        EXPECT_EQ(subject.errors(), "") << "no option is read from the environment";
    }
    EXPECT_EQ(system(("rm -r " + std::string(folder)).c_str()), 0);
}
#endif

TEST_F(ControlOfBusyThreads, SetsEveryLiveOption)
{
    Client client(pid());
    std::vector<std::string> requests;
    for (size_t i = 0; i < hf_option_count(); i++) {
        const hf_option *option = hf_option_at(i);
        std::string name = option->name;
        if (option->live == 0 || name == "zeroed_reserve") continue; // whose maximum is all memory
        for (uint64_t value : {option->minimum, option->maximum, option->initial})
            requests.push_back("set " + name + " " +
                               (option->choices != nullptr ? option->choices[value] : std::to_string(value)));
    }
    for (int round = 0; round < 20; round++)
        for (const std::string &request : requests)
            ASSERT_TRUE(parse_json(client.ask(request))["ok"].GetBool()) << request;
}
