//! One run: a site, its faults and its people, from a seed.

use std::sync::PoisonError;

use belay_defects::Defect;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::archive::Archive;
use super::audit::Evidence;
use super::auditor::FoundData;
use super::backup::Backup;
use super::bugs::{Bugs, Memory};
use super::damage::DamagedCalls;
use super::hosts::{Inventory, Owners};
use super::knobs::Knobs;
use super::orders::orders;
use super::outside::Outside;
use super::records::{Mailbox, Observations, RepeatedCalls};
use super::retention::DeletedExecutions;
use super::site::{
    AUDITOR, CLIENTS, EXECUTOR, FORGER, GATE, HORIZON, LOOKER, MAX_DURATION, MAX_EXTENSIONS, MAX_READING, MAX_RECOVERY,
    PEOPLE, RECENTLY, RUNNER, SITE,
};
use super::{
    audit, auditor, client, documents, features, forger, hosts, inputs, looker, operator, people, plans, policy,
    retention, webhooks,
};
use crate::checker::Checker;
use crate::fault::{self, Conditions};
use crate::machine;
use crate::trace;
use crate::world::World;

pub(super) fn run(seed: u64, bugs: Bugs) -> Result<(), String> {
    if let Some(defect) = bugs.defect {
        belay_defects::plant(defect);
    }
    let mut random = StdRng::seed_from_u64(seed);
    let conditions = Conditions::generate(&mut random);
    let mut world = World::new(seed, &conditions, MAX_DURATION);
    let checker = Checker::default();
    let damaged = DamagedCalls::default();
    let (taken, backup) = (DeletedExecutions::default(), Backup::default());
    let observed = Observations::new(
        &checker,
        bugs.gate == Memory::Kept,
        !bugs.restores_journal,
        damaged.clone(),
        taken.clone(),
        backup.clone(),
        bugs.reads_beside(),
    )
    .of_replaced_executors(bugs.replaces_executors);
    let policies = policy::generate(&mut random);
    let mut knobs = Knobs::generate(&mut random, seed);
    if bugs.retains {
        knobs.executor.retention_interval = retention::interval(seed);
    }
    if bugs.webhooks {
        knobs.executor.max_message_delay = webhooks::max_delay(seed);
    }
    let mailbox = Mailbox::default();
    trace::event(format_args!("{knobs:?}"));
    machine::interleave(knobs.interleaving);
    let site = hosts::Site {
        bugs,
        outside: Outside::default(),
        checker: checker.clone(),
        seed: random.random(),
        owners: Owners::default(),
        policies,
        inventory: Inventory::default(),
        knobs,
        archive: Archive::default(),
        damaged,
        taken: taken.clone(),
        mailbox: mailbox.clone(),
        backup: backup.clone(),
        number: seed,
        models: Default::default(),
    };

    let here = site.clone();
    world.host(GATE, move || hosts::gate(here.clone()));
    let here = site.clone();
    world.host(RUNNER, move || hosts::runner(here.clone()));
    let here = site.clone();
    world.host(EXECUTOR, move || hosts::executor(here.clone()));
    if bugs.webhooks {
        let mailbox = mailbox.clone();
        world.host(webhooks::RECEIVER, move || webhooks::receive(seed, mailbox.clone()));
    }
    let mut orders = orders(&mut random, bugs);
    if bugs.waits {
        let waits = if seed % 4 == 3 { plans::sleep } else { plans::add_waits };
        orders.iter_mut().for_each(|order| waits(&mut StdRng::seed_from_u64(order.seed), &mut order.plan));
    }
    if bugs.extends {
        for order in &mut orders {
            let random = &mut StdRng::seed_from_u64(order.seed ^ 4);
            if order.seed % 3 == 1 {
                order.plan = plans::listing(random, order.plan.id.clone());
                order.goes_on = 0.9;
                continue;
            }
            // Several executions of one plan, which use each other's results.
            if seed.is_multiple_of(3) && order.seed % 3 == 2 {
                order.plan = plans::recalling(random);
                order.goes_on = 0.6;
                continue;
            }
            plans::extend(random, &mut order.plan);
            // With numbers of its own, so that the rest of the plan is what it was without.
            let one_effect = bugs.defect.is_none_or(|defect| defect == Defect::LayerLeftOut);
            plans::add_calls(&mut StdRng::seed_from_u64(order.seed ^ 16), &mut order.plan, one_effect);
            features::add_checks(random, &mut order.plan);
            features::share(random, &mut order.plan);
            // Only where nothing is planted: the seeds that find what is planted stay what they are.
            if bugs.defect.is_none_or(|defect| defect == Defect::HeldBudgetIgnored) {
                features::limit(&mut StdRng::seed_from_u64(order.seed ^ 32), &mut order.plan);
            }
            if bugs.defect.is_none() {
                features::repeat(&mut StdRng::seed_from_u64(order.seed ^ 256), &mut order.plan);
            }
            features::wait_longer(random, &mut order.plan);
        }
    }
    if bugs.escalates || bugs.extends {
        for order in orders.iter_mut().filter(|order| bugs.escalates || order.seed.is_multiple_of(4)) {
            features::escalate(&mut StdRng::seed_from_u64(order.seed ^ 8), &mut order.plan);
        }
    }
    // As with budgets, and not where earlier results are looked for.
    if bugs.reads_beside() || bugs.defect == Some(Defect::QuestionOfAnotherRun) {
        for order in orders.iter_mut().filter(|order| order.plan.id != "recalling") {
            features::ask(&mut StdRng::seed_from_u64(order.seed ^ 64), &mut order.plan);
        }
    }
    if bugs.nests {
        orders
            .iter_mut()
            .for_each(|order| plans::add_plans(&mut StdRng::seed_from_u64(order.seed ^ 2), &mut order.plan));
    }
    for order in orders.iter_mut().filter(|order| order.seed.is_multiple_of(3)) {
        plans::add_conditions(&mut StdRng::seed_from_u64(order.seed ^ 1), &mut order.plan);
    }
    // As with budgets.
    if bugs.defect.is_none() {
        for order in orders.iter_mut().filter(|order| !order.seed.is_multiple_of(3) && order.plan.id != "recalling") {
            plans::add_joins(&mut StdRng::seed_from_u64(order.seed ^ 128), &mut order.plan);
        }
    }
    if bugs.escalates || bugs.nests {
        for order in &mut orders {
            order.inputs = inputs::add(&mut StdRng::seed_from_u64(order.seed ^ 16), &mut order.plan);
        }
    }
    if bugs.escalates || bugs.extends {
        for order in orders.iter_mut().filter(|order| order.seed.is_multiple_of(2)) {
            documents::write(&mut StdRng::seed_from_u64(order.seed ^ 32), order);
        }
    }
    orders.iter_mut().for_each(|order| order.is_driven = bugs.drives_some);
    if bugs.forks {
        orders.iter_mut().for_each(|order| order.forks = 0.5);
    }
    if bugs.deletes {
        orders.iter_mut().for_each(|order| order.deletes = 0.6);
    }
    for order in &orders {
        trace::detail(format_args!("{} asks for {:?}, as {:?}", order.request_id, order.plan, order.document));
    }
    for (index, name) in CLIENTS.into_iter().enumerate() {
        let own = orders.iter().skip(index).step_by(CLIENTS.len()).cloned().collect();
        world.client(name, client::work(own, observed.clone()));
    }
    if bugs.looks {
        world.client(LOOKER, looker::look(random.random(), observed.clone()));
    }
    for name in PEOPLE {
        world.client(name, people::decide(random.random(), observed.clone()));
    }
    let repeated = RepeatedCalls::default();
    // A runner that has lost what it knew cannot know that a grant was spent.
    let deletes = bugs.deletes || bugs.retains;
    let restores = bugs.restores_journal || bugs.restores_all;
    let keeps_all = bugs.calls == Memory::Kept && !bugs.damages_a_row && !restores && !deletes;
    let may_repeat = keeps_all.then(|| repeated.clone());
    let forger = forger::forge(random.random(), site.owners.clone(), site.keys(), observed.clone(), may_repeat);
    world.client(FORGER, forger);
    world.schedule(fault::generate(&mut random, SITE, HORIZON));
    if let Some((count, fault)) = bugs.often {
        world.schedule((0..count).map(|_| (HORIZON.mul_f64(random.random()), fault)).collect());
    }
    if bugs.webhooks {
        world.schedule(webhooks::faults(seed));
    }

    let failed = |error: Box<dyn std::error::Error>| error.to_string();
    let all_ended = || observed.ended_count() == orders.len();
    // A run that has shown a violation need not last as long as the others.
    let decided = || all_ended() || checker.verdict().is_err();
    if bugs.restores_all {
        operator::restore_everything(&mut world, &site, &observed, seed, decided).map_err(failed)?;
    }
    world.run_until(HORIZON, decided).map_err(failed)?;
    checker.verdict()?;
    trace::event("all faults have ended");
    world.heal();
    mailbox.calm();
    observed.set_healed(world.now_micros());
    // Invariant 6 of REQUIREMENTS: nothing is stuck.
    let mut has_ended = world.run_until(MAX_RECOVERY, decided).map_err(failed)?;
    for _ in 0..MAX_EXTENSIONS {
        let runs = site.outside.runs().len();
        if has_ended || !world.run_until(RECENTLY, || site.outside.runs().len() > runs || decided()).map_err(failed)? {
            break;
        }
        has_ended = world.run_until(MAX_RECOVERY, decided).map_err(failed)?;
    }
    if !has_ended {
        let requests: Vec<_> = orders.iter().map(|order| order.request_id.clone()).collect();
        checker.violation(format_args!("stuck: {:?}", observed.open(&requests)));
    }

    checker.verdict()?;
    if bugs.webhooks {
        mailbox.look_again();
        if !world.run_until(webhooks::MAX_DELIVERY, || mailbox.waiting() == Some(0)).map_err(failed)? {
            checker.violation(format_args!("messages are not delivered: {:?} of them wait", mailbox.waiting()));
        }
        checker.verdict()?;
    }
    if bugs.restores_journal {
        // Executions that were lost with the journal cannot be compared; the watchers have checked their events.
        return Ok(());
    }
    site.owners.drive_all();
    taken.close();
    for host in SITE.servers {
        world.power_cycle(host);
    }
    let found = FoundData::default();
    let owners = (bugs.calls == Memory::Kept).then(|| site.owners.clone());
    let auditor = auditor::read_everything(random.random(), observed.clone(), owners, found.clone());
    world.client(AUDITOR, auditor);
    let is_read = || found.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if !world.run_until(MAX_READING, is_read).map_err(failed)? {
        checker.violation("what is stored cannot be read after the last power loss");
    }
    site.inventory.request();
    world.power_cycle(RUNNER);
    if !world.run_until(MAX_RECOVERY, || site.inventory.is_taken()).map_err(failed)? {
        checker.violation("the workspaces cannot be read after the last power loss");
    }
    let stored = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((stored, workspaces)) = stored.zip(site.inventory.take()) {
        let evidence = Evidence {
            stored: &stored,
            observed: &observed,
            outside: &site.outside,
            workspaces: &workspaces,
            ledger_lost: bugs.calls == Memory::Lost,
            orders: &orders,
            keys: &site.keys(),
            owners: &site.owners,
            archive: &site.archive,
            damaged: &site.damaged,
            repeated: &repeated,
            drives_some: bugs.drives_some,
        };
        let mut violations = audit::audit(&evidence);
        if bugs.webhooks {
            audit::audit_webhooks(&evidence, &mailbox, seed, &mut violations);
        }
        for violation in violations {
            checker.violation(violation);
        }
    }
    checker.verdict()
}
