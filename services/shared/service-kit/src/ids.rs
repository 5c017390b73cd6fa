//! Random identities from a generator that is handed in.

use std::sync::{Mutex, PoisonError};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// Makes random ids.
#[derive(Debug)]
pub struct Ids(Mutex<StdRng>);

impl Ids {
    /// Seeded by the operating system.
    ///
    /// # Panics
    /// When the operating system gives no randomness.
    pub fn from_system() -> Self {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).expect("the operating system gives randomness");
        Self(Mutex::new(StdRng::from_seed(seed)))
    }

    /// The same ids for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// 20 characters out of `0-9a-z` without `i`, `l`, `o` and `u`, which are misread or make words: 100 random bits.
    pub fn next_id(&self) -> String {
        const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut bits: u128 = self.0.lock().unwrap_or_else(PoisonError::into_inner).random();
        (0..20)
            .map(|_| {
                let character = ALPHABET[(bits & 31) as usize] as char;
                bits >>= 5;
                character
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_ids_and_they_differ() {
        let (a, b) = (Ids::seeded(1), Ids::seeded(1));
        let ids: Vec<String> = (0..100).map(|_| a.next_id()).collect();
        assert_eq!(ids, (0..100).map(|_| b.next_id()).collect::<Vec<_>>());
        assert!(ids.iter().all(|id| id.len() == 20 && ids.iter().filter(|other| *other == id).count() == 1));
        assert_ne!(Ids::seeded(2).next_id(), ids[0]);
    }
}
