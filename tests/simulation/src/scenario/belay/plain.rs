//! The three services as they are, under faults, without anything planted: the site of scenarios about one part of the executor.

use belay_executor::Models;
use rand::Rng as _;
use rand::rngs::StdRng;

use super::bugs::Bugs;
use super::hosts;
use super::knobs::Knobs;
use super::outside::Outside;
use super::policy;
use super::site::{EXECUTOR, GATE, MAX_DURATION, RUNNER};
use crate::checker::Checker;
use crate::fault::Conditions;
use crate::machine;
use crate::world::World;

/// A world with the services in it.
pub(super) struct Plain {
    pub(super) world: World,
    pub(super) checker: Checker,
    pub(super) outside: Outside,
}

impl Plain {
    pub(super) fn new(random: &mut StdRng, seed: u64) -> Self {
        Self::with_models(random, seed, Models::default())
    }

    /// With models that steps may ask.
    pub(super) fn with_models(random: &mut StdRng, seed: u64, models: Models) -> Self {
        let conditions = Conditions::generate(random);
        let mut world = World::new(seed, &conditions, MAX_DURATION);
        let checker = Checker::default();
        let knobs = Knobs::generate(random, seed);
        machine::interleave(knobs.interleaving);
        let site = hosts::Site {
            bugs: Bugs::default(),
            outside: Outside::default(),
            checker: checker.clone(),
            seed: random.random(),
            owners: Default::default(),
            policies: policy::generate(random),
            inventory: Default::default(),
            knobs,
            archive: Default::default(),
            damaged: Default::default(),
            taken: Default::default(),
            mailbox: Default::default(),
            backup: Default::default(),
            number: seed,
            models,
        };
        let outside = site.outside.clone();
        let here = site.clone();
        world.host(GATE, move || hosts::gate(here.clone()));
        let here = site.clone();
        world.host(RUNNER, move || hosts::runner(here.clone()));
        world.host(EXECUTOR, move || hosts::executor(site.clone()));
        Self { world, checker, outside }
    }
}
