//! Random numbers that are the same for the same seed.

/// A generator of random numbers that depend only on its seed.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        // Never zero, which would stay zero.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns dice that also depend on a text.
    pub fn at(seed: u64, text: &str) -> Self {
        let of_text = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut dice = Self::new(seed ^ of_text);
        dice.below(2);
        dice
    }

    /// Returns a number below `below`.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % (below.max(1) as u64)).unwrap()
    }

    /// Returns true in one of `cases` cases.
    pub fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    pub fn pick<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }

    /// Returns some of them, in their order; each with a chance of a half.
    pub fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        all.iter().filter(|_| self.one_in(2)).cloned().collect()
    }
}
