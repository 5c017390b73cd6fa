//! The dependency graph and its cycles.
//!
//! A plan may be one chain of 10,000 steps, so nothing here recurses.

/// By step: the steps that depend on it, ascending.
pub(super) fn reversed(dependencies: &[&[usize]]) -> Vec<Vec<usize>> {
    let mut dependents = vec![Vec::new(); dependencies.len()];
    for (step, dependencies) in dependencies.iter().enumerate() {
        for &dependency in *dependencies {
            dependents[dependency].push(step);
        }
    }
    dependents
}

/// Returns one cycle for each strongly connected component: each step of it depends on the next, the last on the first. A cycle begins with its
/// earliest step; the cycles are in the order of the plan.
pub(super) fn cycles(dependencies: &[&[usize]]) -> Vec<Vec<usize>> {
    let component = components(dependencies);
    let mut found = vec![false; dependencies.len()];
    let mut cycles = Vec::new();
    // The walk in which a step was last visited, so that no step is visited twice.
    let mut walk_of = vec![usize::MAX; dependencies.len()];
    for start in 0..dependencies.len() {
        if found[component[start]] {
            continue;
        }
        let onward = |step: usize| dependencies[step].iter().copied().find(|&next| component[next] == component[step]);
        let mut walk = Vec::new();
        let mut step = start;
        // A step on a cycle always has a successor in its component, so the walk ends at a step that it has visited.
        while let Some(next) = onward(step) {
            if walk_of[step] == start {
                let entry = walk.iter().position(|&met| met == step).expect("it was visited in this walk");
                let mut cycle = walk.split_off(entry);
                let earliest = cycle.iter().enumerate().min_by_key(|(_, step)| **step).map_or(0, |(place, _)| place);
                cycle.rotate_left(earliest);
                cycles.push(cycle);
                found[component[start]] = true;
                break;
            }
            walk_of[step] = start;
            walk.push(step);
            step = next;
        }
    }
    cycles
}

/// By step: the number of its strongly connected component (Tarjan's algorithm, with its own stack).
fn components(dependencies: &[&[usize]]) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    let count = dependencies.len();
    let mut component = vec![UNSEEN; count];
    let mut order = vec![UNSEEN; count];
    // The earliest step, in the order of visits, that is still open and can be reached.
    let mut low = vec![0; count];
    let mut open = Vec::new();
    let mut visits = 0;
    let mut components = 0;
    for root in 0..count {
        if order[root] != UNSEEN {
            continue;
        }
        let mut path = vec![(root, 0)];
        while let Some((step, next_edge)) = path.last_mut() {
            let step = *step;
            if *next_edge == 0 {
                order[step] = visits;
                low[step] = visits;
                visits += 1;
                open.push(step);
            }
            let Some(&dependency) = dependencies[step].get(*next_edge) else {
                path.pop();
                if let Some((parent, _)) = path.last() {
                    low[*parent] = low[*parent].min(low[step]);
                }
                if low[step] == order[step] {
                    while let Some(member) = open.pop() {
                        component[member] = components;
                        if member == step {
                            break;
                        }
                    }
                    components += 1;
                }
                continue;
            };
            *next_edge += 1;
            if order[dependency] == UNSEEN {
                path.push((dependency, 0));
            } else if component[dependency] == UNSEEN {
                low[step] = low[step].min(order[dependency]);
            }
        }
    }
    component
}
