//! A store whose answers are lost, as those of a store in another process are when a connection breaks.

use belay_journal::{BatchOutcome, JournalWriter, StoreError, StoreWrite};

/// A writer that loses some of its answers: before it commits, after it has committed, or while the batch is still on its way. That one is
/// committed right before the next, or never.
#[derive(Debug)]
pub struct LostAnswers<W> {
    writer: W,
    on_its_way: Option<Vec<StoreWrite>>,
    /// A random number for each decision.
    random: u64,
    lost: usize,
    max_lost: usize,
    has_ended: fn() -> bool,
}

impl<W> LostAnswers<W> {
    /// Around a writer. `seed` decides which answers are lost, about half of them, and at most `max_lost`.
    pub fn new(writer: W, seed: u64, max_lost: usize) -> Self {
        Self { writer, on_its_way: None, random: seed, lost: 0, max_lost, has_ended: || false }
    }

    /// No answer is lost any more once this is so.
    #[must_use]
    pub fn until(self, has_ended: fn() -> bool) -> Self {
        Self { has_ended, ..self }
    }

    /// A number below `below`, by SplitMix64.
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }
}

impl<W: JournalWriter> JournalWriter for LostAnswers<W> {
    fn blocks(&self) -> bool {
        self.writer.blocks()
    }

    async fn commit(&mut self, batch: &[StoreWrite]) -> BatchOutcome {
        if let Some(late) = self.on_its_way.take()
            && self.random(2) == 0
        {
            self.writer.commit(&late).await?;
        }
        let is_lost = self.lost < self.max_lost && !(self.has_ended)() && self.random(2) == 0;
        if !is_lost {
            return self.writer.commit(batch).await;
        }
        self.lost += 1;
        match self.random(3) {
            0 => {}
            1 => drop(self.writer.commit(batch).await?),
            _ => self.on_its_way = Some(batch.to_vec()),
        }
        Err(StoreError::OutcomeUnknown("the connection broke".into()))
    }
}
