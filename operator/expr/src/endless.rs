//! Evaluations that never end, for tests.
//!
//! **Invariant:** compiled only with the feature `endless`, which a release build refuses.

#[cfg(all(feature = "endless", not(debug_assertions)))]
compile_error!("the feature `endless` is for tests: build without it");

#[cfg(feature = "endless")]
mod marked {
    use std::sync::{Mutex, PoisonError};

    use crate::budget;

    /// The units that a slow evaluation charges: some hundredths of a second in a test build.
    const SLOW: usize = 320_000;

    static RELEASED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Ends every evaluation that ignores its stop flag and whose text contains `name`.
    pub fn release(name: &str) {
        RELEASED.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    fn is_released(text: &str) -> bool {
        RELEASED.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|name| text.contains(name))
    }

    /// Executes the mark for `place` in the text: `[[slow:place]]` takes some hundredths of a second,
    /// `[[endless:place]]` ends when the evaluation is stopped, `[[deaf:place]]` ignores that, and `[[abort:place]]`
    /// ends the process.
    pub fn meet(place: &str, text: &str) {
        let has_mark = |kind: &str| text.contains(&format!("[[{kind}:{place}]]"));
        if has_mark("slow") {
            (0..SLOW).take_while(|_| budget::charge(1).is_ok()).for_each(|_| std::hint::spin_loop());
        }
        if has_mark("endless") {
            while budget::charge(1).is_ok() {
                std::hint::spin_loop();
            }
        }
        if has_mark("deaf") {
            while !is_released(text) {
                std::hint::spin_loop();
            }
        }
        if has_mark("abort") {
            std::process::abort();
        }
    }
}

#[cfg(not(feature = "endless"))]
mod marked {
    /// Does nothing: the feature is off.
    pub fn meet(_: &str, _: &str) {}
}

pub use marked::meet;
#[cfg(feature = "endless")]
pub use marked::release;
