//! Whether memory levels off: the same batch of executions again and again on the same processes.

use std::{path::Path, time::Duration};

use futures::future;
use serde::Serialize;

use crate::{
    Result,
    belay::Belay,
    looking,
    place::Place,
    proc,
    subject::{Load, Subject as _},
};

/// How long nothing runs before memory is read for the last time.
const IDLE: Duration = Duration::from_secs(10);

/// The interval at which memory is read while a batch runs.
const LOOKS: Duration = Duration::from_millis(250);

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) batches: usize,
    pub(crate) load: Load,
}

/// The work of the clients of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    /// They wait for all executions at once, and read nothing.
    Waiting,
    /// They watch from the start, wait for one after the other, and read what has ended.
    Reading,
}

/// The memory (PSS) of all of Belay's processes after each batch, in KiB.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) idle_kib: u64,
    pub(crate) batches_kib: Vec<u64>,
    /// The most while a batch ran.
    pub(crate) peak_kib: u64,
    /// The same after ten idle seconds.
    pub(crate) afterwards_kib: u64,
}

impl Growth {
    /// The average of the last third of the batches relative to the third before it: 1 when memory has levelled off. `None` with fewer than three
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
    client: Client,
    mut show: impl FnMut(usize, &[u64]),
) -> Result<Growth> {
    let place = Place::new(root)?;
    let mut belay = Belay::start(binaries, &place).await?;
    let pids = belay.pids();
    let idle_kib = proc::resident_kib(&pids)?;
    let mut batches_kib = Vec::with_capacity(scale.batches);
    let mut peak_kib = 0;
    for number in 1..=scale.batches {
        let mut batch = Box::pin(async {
            match client {
                Client::Waiting => belay.run(scale.load).await.map(drop),
                Client::Reading => read_all(&belay, &place, scale.load).await,
            }
        });
        loop {
            match tokio::time::timeout(LOOKS, &mut batch).await {
                Ok(ended) => break ended?,
                Err(_) => peak_kib = peak_kib.max(proc::resident_kib(&pids)?),
            }
        }
        drop(batch);
        let of_each = pids.iter().map(|pid| proc::resident_kib(&[*pid])).collect::<Result<Vec<_>>>()?;
        show(number, &of_each);
        batches_kib.push(of_each.iter().sum());
    }
    tokio::time::sleep(IDLE).await;
    Ok(Growth { idle_kib, batches_kib, peak_kib, afterwards_kib: proc::resident_kib(&pids)? })
}

/// Runs a batch as people do: watches each execution from its start, waits for one after the other, and reads each that has ended.
async fn read_all(belay: &Belay, place: &Place, load: Load) -> Result<()> {
    let names = belay.begin(load).await?;
    let address = place.socket("executor.sock");
    let watches = future::try_join_all(names.iter().map(|name| looking::watch(&address, name, 1))).await?;
    let readers: Vec<_> = watches.into_iter().flatten().map(|watch| tokio::spawn(looking::read(watch))).collect();
    for name in &names {
        belay.finish(std::slice::from_ref(name), load.steps).await?;
        belay.events(name, |_| false).await?;
    }
    for reader in readers {
        reader.await??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_levelled_off_has_the_ratio_one() {
        let growth = |batches_kib: &[u64]| {
            let batches_kib = batches_kib.to_vec();
            Growth { idle_kib: 1, batches_kib, peak_kib: 1, afterwards_kib: 1 }.ratio()
        };
        assert_eq!(growth(&[50, 90, 90, 100, 100, 100]), Some(200.0 / 190.0));
        assert_eq!(growth(&[10, 50, 50, 100, 100, 100]), Some(200.0 / 150.0));
        assert_eq!(growth(&[9, 9, 100, 200, 200, 100]), Some(1.0));
        assert_eq!(growth(&[1, 2]), None);
    }
}
