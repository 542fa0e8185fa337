-- Asks Tollgate whether a request may pass: the action `http-request lua.tollgate closed` of haproxy.cfg.
--
-- HAProxy has no forward-auth of its own. An SPOE agent would be one more program to run; this is one
-- request by the HTTP client that HAProxy has for Lua, through the section `listen tollgate`.

-- Where that section listens. The host in the URL is not looked up.
local SECTION = "abns@tollgate"
local URL = "http://tollgate/v1/forward-auth"
-- Only for when the section itself is missing: its own timeouts are shorter.
local TIMEOUT_MS = 1000

-- Headers of the request that must not reach Tollgate: those that speak of the connection or of the body,
-- which is not sent, and the one beside X-Forwarded-* in which a client could pretend to be a proxy.
local NOT_SENT = {
  ["connection"] = true, ["keep-alive"] = true, ["proxy-connection"] = true, ["te"] = true,
  ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true, ["expect"] = true,
  ["content-length"] = true, ["host"] = true, ["forwarded"] = true,
}

-- Headers of an answer that ends a request, which the client sees.
local REFUSAL = {
  "content-type", "retry-after", "ratelimit", "ratelimit-policy",
  "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
}

local function question(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not NOT_SENT[name] then
      headers[name] = values
    end
  end
  -- These replace what a client may have written there. Behind another proxy, let `http-request set-src`
  -- or accept-proxy find the address first.
  headers["x-forwarded-method"] = { txn.sf:method() }
  headers["x-forwarded-uri"] = { txn.sf:pathq() }
  headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
  headers["x-forwarded-for"] = { txn.sf:src() }
  return headers
end

local function reply(txn, status, headers, body)
  local answer = txn:reply({ status = status, body = body })
  for name, value in pairs(headers) do
    answer:add_header(name, value)
  end
  txn:done(answer)
end

local function tollgate(txn, while_away)
  local answer = core.httpclient():get({
    url = URL, dst = SECTION, headers = question(txn), timeout = TIMEOUT_MS,
  })
  local function header(name)
    local values = answer.headers[name]
    return values and values[0]
  end

  -- None at all if the section is missing.
  local status = answer.status or 0
  if status == 200 then
    for _, name in ipairs({ "ratelimit", "ratelimit-policy" }) do
      -- Not there if no rule applies, and set_var would make 0 of nil.
      if header(name) then
        txn:set_var("txn.tollgate_" .. name:gsub("-", "_"), header(name))
      end
    end
  elseif status >= 400 and status < 500 then
    -- 429, 403, or Tollgate will not read this request (431: more than 64 headers, say). Who could pass for
    -- that would have no limits.
    local headers = {}
    for _, name in ipairs(REFUSAL) do
      headers[name] = header(name)
    end
    reply(txn, status, headers, answer.body)
  elseif while_away ~= "open" then
    reply(txn, 503, { ["content-type"] = "application/problem+json", ["retry-after"] = "1" },
      '{"type":"urn:tollgate:problem:away","title":"the limits could not be asked","status":503}\n')
  end
end

core.register_action("tollgate", { "http-req" }, tollgate, 1)
