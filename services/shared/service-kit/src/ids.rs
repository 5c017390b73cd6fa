//! Random identities from a generator that the caller passes in.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// Makes random ids.
#[derive(Debug)]
pub struct Ids(Mutex<StdRng>);

impl Ids {
    /// Seeded by the operating system.
    ///
    /// # Panics
    /// When the operating system provides no randomness.
    pub fn from_system() -> Self {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).expect("the operating system provides randomness");
        Self(Mutex::new(StdRng::from_seed(seed)))
    }

    /// The same ids for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// 100 random bits; see [`id_of`].
    pub fn next_id(&self) -> String {
        id_of(self.0.lock().unwrap_or_else(PoisonError::into_inner).random())
    }

    /// 32 random bytes, as good as the operating system's when it gave the seed: enough for a key.
    pub fn next_key(&self) -> [u8; 32] {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    /// A random duration from zero to this one, inclusive, in microseconds.
    pub fn up_to(&self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.0.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..=micros))
    }

    /// Fills the bytes, as good as [`Self::next_key`] does.
    pub fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
    }
}

/// The lowest 100 of these bits as 20 characters out of `0-9a-z` without `i`, `l`, `o` and `u`, which are misread or make words.
pub fn id_of(mut bits: u128) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    (0..20)
        .map(|_| {
            let character = ALPHABET[(bits & 31) as usize] as char;
            bits >>= 5;
            character
        })
        .collect()
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
        assert_eq!(id_of(0), "0".repeat(20));
        assert_eq!(id_of(u128::MAX), "z".repeat(20));
        assert!(a.next_key() == b.next_key() && a.next_key() != [0; 32]);
        let filled = |ids: &Ids| {
            let mut bytes = [0; 20];
            ids.fill(&mut bytes);
            bytes
        };
        assert!(filled(&Ids::seeded(1)) == filled(&Ids::seeded(1)) && filled(&a) != [0; 20]);
    }
}
