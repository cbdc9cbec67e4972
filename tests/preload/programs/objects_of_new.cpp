// One error and one leak of objects of operator new; with an argument, threads that each use objects of their own.
#include <thread>
#include <vector>

namespace
{

struct Node {
    Node *next;
    char text[32];
};

void work()
{
    for (int i = 0; i < 2000; i++) {
        std::vector<Node *> nodes;
        for (int k = 0; k < 5; k++) nodes.push_back(new Node);
        for (Node *node : nodes) delete node;
    }
}

} // namespace

int main(int argc, char **)
{
    if (argc > 1) {
        std::thread first(work), second(work);
        first.join();
        second.join();
        return 0;
    }
    Node *lost = new Node;
    static_cast<volatile char *>(lost->text)[32] = 1; // one byte past the end
    lost = nullptr;
    return 0;
}
