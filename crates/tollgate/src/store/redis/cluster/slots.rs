//! From a hash tag to one of the 16,384 slots, and back.

/// How many slots a cluster has.
pub(in crate::store::redis) const SLOTS: u16 = 16_384;

/// CRC16 as Redis has it (XMODEM: polynomial 0x1021, from zero), a byte at a time.
const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

/// The slot of a hash tag, given without its braces.
pub(in crate::store::redis) fn slot_of(tag: &[u8]) -> u16 {
    let crc =
        tag.iter().fold(0_u16, |crc, &byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) ^ u16::from(byte))]);
    crc % SLOTS
}

/// The slot of a whole key, as a server finds it.
pub(in crate::store::redis) fn slot_of_key(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    slot_of(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes())
}

/// A hash tag in a slot: `start` and the first number that leads there. About as many tries as there are
/// slots, so it is worth remembering.
pub(in crate::store::redis) fn tag_in(slot: u16, start: &str) -> String {
    let tags = (0_u32..).map(|number| format!("{start}{number}"));
    tags.into_iter().find(|tag| slot_of(tag.as_bytes()) == slot).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        for key in ["", "a", "{user_123}:x", "tg:1p:{203.0.113.9}:login:0:sl", "{}x", "a{b", "a}b{c}d"] {
            assert_eq!(slot_of_key(key), testkit::slot_of(key), "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        for slot in [0, 1, 5460, 5461, 10_922, 16_383] {
            assert_eq!(slot_of(tag_in(slot, "instances=").as_bytes()), slot);
        }
    }
}
