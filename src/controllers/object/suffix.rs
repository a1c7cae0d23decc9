//! Random name suffixes.

/// Random name suffixes. The executor passes the seed, so that a plan is a function of its input.
#[derive(Clone, Debug)]
pub struct NameSuffixes(u64);

impl NameSuffixes {
    const ALPHABET: &'static [u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

    /// The sequence for a seed.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }
}

impl Iterator for NameSuffixes {
    type Item = String;

    /// Five characters of the alphabet that the API server uses for generated names.
    fn next(&mut self) -> Option<String> {
        let mut text = String::with_capacity(5);
        for _ in 0..5 {
            // splitmix64
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.0;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^= bits >> 31;
            let index = usize::try_from(bits % 27).unwrap_or_default();
            text.extend(Self::ALPHABET.get(index).map(|byte| char::from(*byte)));
        }
        Some(text)
    }
}
