// What the server answers. All memory that an answer needs is taken from the resource that comes with the request; nothing of
// it is kept.
//
//     GET  /products?category=tea&words=dark+sweet&most=2000&sort=price&page=2    a page of the products that fit
//     GET  /products/17                                                           one, and others like it, as JSON
//     POST /quote  {"items": [{"id": 17, "count": 3}], "coupon": "WINTER"}        what an order costs, as JSON
#pragma once

#include <memory_resource>
#include <vector>

#include "catalogue.hpp"
#include "http.hpp"

class shop
{
  public:
    // `products` outlives the shop.
    explicit shop(const std::vector<product> &products) : products_(products) {}

    http::response answer(const http::request &request, std::pmr::memory_resource *resource) const;

  private:
    http::response list(const http::request &request, std::pmr::memory_resource *resource) const;
    http::response show(std::string_view id, std::pmr::memory_resource *resource) const;
    http::response quote(const http::request &request, std::pmr::memory_resource *resource) const;

    // The product of a number, or NULL.
    const product *find(std::int64_t id) const;

    const std::vector<product> &products_;
};
