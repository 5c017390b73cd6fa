//! Whether memory levels off: the same batch of executions again and again on the same processes.

use std::path::Path;

use serde::Serialize;

use crate::{
    Result,
    belay::Belay,
    place::Place,
    proc,
    subject::{Load, Subject as _},
};

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) batches: usize,
    pub(crate) load: Load,
}

/// The memory (PSS) of all of Belay's processes after each batch, in KiB.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) idle_kib: u64,
    pub(crate) batches_kib: Vec<u64>,
}

impl Growth {
    /// What the last third of the batches has on average compared with the third before it: 1 when memory has levelled off. `None` with fewer than three
    /// batches.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let third = self.batches_kib.len() / 3;
        let (before, last) = self.batches_kib.split_at_checked(self.batches_kib.len() - third)?;
        let mean = |batches: &[u64]| batches.iter().sum::<u64>() as f64 / batches.len() as f64;
        (third > 0).then(|| mean(last) / mean(&before[before.len() - third..]))
    }
}

/// Runs the batches, one after the other. `show` is called after each with its number and the memory of each process in KiB.
pub(crate) async fn measure(
    binaries: &Path,
    root: &Path,
    scale: Scale,
    mut show: impl FnMut(usize, &[u64]),
) -> Result<Growth> {
    let place = Place::new(root)?;
    let mut belay = Belay::start(binaries, &place).await?;
    let pids = belay.pids();
    let idle_kib = proc::resident_kib(&pids)?;
    let mut batches_kib = Vec::with_capacity(scale.batches);
    for number in 1..=scale.batches {
        belay.run(scale.load).await?;
        let of_each = pids.iter().map(|pid| proc::resident_kib(&[*pid])).collect::<Result<Vec<_>>>()?;
        show(number, &of_each);
        batches_kib.push(of_each.iter().sum());
    }
    Ok(Growth { idle_kib, batches_kib })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_levelled_off_has_the_ratio_one() {
        let growth = |batches_kib: &[u64]| Growth { idle_kib: 1, batches_kib: batches_kib.to_vec() }.ratio();
        assert_eq!(growth(&[50, 90, 90, 100, 100, 100]), Some(200.0 / 190.0));
        assert_eq!(growth(&[10, 50, 50, 100, 100, 100]), Some(200.0 / 150.0));
        assert_eq!(growth(&[9, 9, 100, 200, 200, 100]), Some(1.0));
        assert_eq!(growth(&[1, 2]), None);
    }
}
