-- What wrk asks the server: pages, products and quotes in turn, each connection thread from another place on.

local seed = 0

function setup(thread)
    seed = seed + 1
    thread:set("seed", seed)
end

function init()
    local get = function(path) return wrk.format("GET", path) end
    local json = {["Content-Type"] = "application/json"}
    local items = {}
    for i = 1, 20 do items[i] = string.format('{"id": %d, "count": %d}', i * 23, i) end
    local order = '{"items": [' .. table.concat(items, ", ") .. '], "coupon": "WINTER"}'
    requests = {
        get("/products?category=tea&words=dark+sweet&sort=price"),
        get("/products?category=coffee&most=5000&page=2"),
        get("/products?words=honey&sort=price"),
        get("/products/17"),
        get("/products/333"),
        wrk.format("POST", "/quote", json, order),
    }
    place = seed
end

function request()
    place = place % #requests + 1
    return requests[place]
end

-- One line for compare.py.
function done(summary, latency)
    local errors = summary.errors
    print(string.format("result requests=%d duration_us=%d p50_us=%d p99_us=%d errors=%d", summary.requests,
        summary.duration, latency:percentile(50), latency:percentile(99),
        errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
