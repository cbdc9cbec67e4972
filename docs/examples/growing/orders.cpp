// The example of docs/characterise.md: a service that takes orders and grows.
//
//     g++ -g -O1 -o orders orders.cpp && ./orders

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

struct Order {
    int customer;
    std::string text;
};

class Service
{
  public:
    void take(int number)
    {
        Order order{number % 1000, "order " + std::to_string(number) + std::string(400, '.')};
        open_[order.customer] = order;
        remember(order);
    }

  private:
    std::map<int, Order> open_; // the last one of each customer
    std::vector<std::string> audit_; // and a line of every order, for ever

    void remember(const Order &order)
    {
        audit_.push_back("took " + order.text);
    }
};

int main()
{
    Service service;
    for (int number = 0;; number++) {
        service.take(number);
        if (number % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}
