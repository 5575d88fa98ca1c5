//! Mutations of a corpus, for tests: a bounded and repeatable stand-in for a coverage-guided fuzzer.
//!
//! **Invariant:** the same corpus gives the same mutations on every machine.

use std::thread;

/// The longest mutation, in bytes.
const LONGEST: usize = 20_000;

/// Texts that have broken parsers: quotes and brackets of every language here, invisible characters, extreme numbers.
const WORDS: [&str; 40] = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "'",
    "\"",
    "\\",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "|",
    ",",
    ":",
    ": ",
    "- ",
    "\n",
    "---\n",
    "&a ",
    "*a",
    "? ",
    "-",
    ".",
    "0",
    "1e308",
    "9223372036854775807",
    "9223372036854775808",
    "null",
    "not ",
    "!",
    "((((((((",
    "[[[[[[[[",
    "é",
    "\u{202e}",
    "\u{200b}",
    "\u{1b}[31m",
    "\u{feff}",
];

/// Gives a driver every seed, then `rounds` mutations of them, on a stack as small as a worker thread's. Returns
/// whether it survived all of them.
#[expect(clippy::print_stdout, reason = "the test harness keeps what tests print, and `cargo xtask test` adds it up")]
pub(crate) fn survives<S: AsRef<[u8]>>(seeds: impl IntoIterator<Item = S>, rounds: usize, target: fn(&[u8])) -> bool {
    let seeds: Vec<Vec<u8>> = seeds.into_iter().map(|seed| seed.as_ref().to_vec()).collect();
    println!("tried: {} fuzz inputs", seeds.len() + rounds);
    let work = move || {
        seeds.iter().for_each(|seed| target(seed));
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        for _ in 0..rounds {
            target(&mutation(&seeds, &mut dice));
        }
    };
    thread::Builder::new().stack_size(2 << 20).spawn(work).is_ok_and(|thread| thread.join().is_ok())
}

/// Returns one of the seeds after a few changes.
fn mutation(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut data = dice.one_of(seeds).cloned().unwrap_or_default();
    for _ in 0..=dice.below(5) {
        let at = dice.below(data.len() + 1);
        let to = (at + dice.below(40)).min(data.len());
        match dice.below(9) {
            0 => drop(data.drain(at..to)),
            1 => data.insert(at, dice.byte()),
            2 => drop(data.splice(at..at, dice.one_of(&WORDS).copied().unwrap_or_default().bytes())),
            3 => {
                let piece = data[at..to].repeat(1 + dice.below(60));
                drop(data.splice(at..at, piece));
            }
            4 => {
                let other = dice.one_of(seeds).map_or(&[][..], Vec::as_slice);
                let from = dice.below(other.len() + 1);
                let until = (from + dice.below(200)).min(other.len());
                drop(data.splice(at..at, other[from..until].iter().copied()));
            }
            5 => data[at..to].reverse(),
            6 => data.truncate(at),
            _ => {
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
        data.truncate(LONGEST);
    }
    data
}

/// A generator of random numbers (xorshift), which are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (bound.max(1) as u64)).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap_or(0)
    }

    fn one_of<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seeds_give_the_same_mutations_and_many_different_ones() {
        let seeds = [b"one: {two: three}".to_vec(), b"{{ four }}".to_vec()];
        let all = |mut dice: Dice| (0..500).map(|_| mutation(&seeds, &mut dice)).collect::<Vec<_>>();
        let (first, again) = (all(Dice(7)), all(Dice(7)));
        assert_eq!(first, again);
        assert!(first.iter().collect::<std::collections::BTreeSet<_>>().len() > 400);
        assert!(first.iter().all(|data| data.len() <= LONGEST));
    }

    #[test]
    fn a_driver_that_panics_is_found() {
        assert!(survives(["abc"], 100, |_| {}));
        assert!(!survives(["abc"], 100, |data| assert!(data.contains(&b'a') || data.len() < 3)));
        assert!(survives(Vec::<Vec<u8>>::new(), 100, |data| assert!(data.len() <= LONGEST)), "no seeds are no mistake");
    }
}
