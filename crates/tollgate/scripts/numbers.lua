-- numbers.lua: the one piece of arithmetic that does not fit into a double.
--
-- Lua 5.1 has only doubles. Every value in these scripts is an integer below 2^53, where doubles
-- are exact; a product of two of them may not be. (Never tostring() or `..` a time either: Lua
-- prints 14 digits, a time in microseconds has 16.)

-- floor(x * y / z), exact, for x, y <= 2^51 and 0 < z <= 2^51: long multiplication in
-- binary, reducing by z at each bit so that nothing passes 2^53.
local function mul_div(x, y, z)
  if x * y < 9007199254740992 then return math.floor(x * y / z) end
  local quotient, rest, bit = 0, 0, 2251799813685248
  while bit >= 1 do
    quotient, rest = quotient * 2, rest * 2
    if x >= bit then
      x = x - bit
      rest = rest + y
    end
    local whole = math.floor(rest / z)
    quotient, rest = quotient + whole, rest - whole * z
    bit = bit / 2
  end
  return quotient
end
