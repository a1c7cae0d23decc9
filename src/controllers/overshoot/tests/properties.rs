use proptest::prelude::*;
use serde_json::json;

use super::world::{World, frozen, frozen_deployment};
use mcm_rules::safety::overshoot::OvershootMargins;

prop_compose! {
    fn any_world()(
        sets in prop::collection::vec((0_usize..20, any::<bool>(), any::<bool>()), 1..4),
        (deployment_is_frozen, deployment_asks) in any::<(bool, bool)>(),
        replicas in 0_i32..8, surge in 0_i32..4, up in 0_u32..5, down in 0_u32..5,
    ) -> World {
        let asks = json!({"metadata": {"annotations": {"safety.machine.sapcloud.io/unfreeze": ""}}});
        let mut world = World::new(0);
        world.snapshot.sets.clear();
        for (index, (machines, is_frozen, is_asked)) in sets.into_iter().enumerate().rev() {
            // `with` changes the set of this name; those before get theirs by order of creation.
            let mut one = World::new(machines);
            if is_frozen {
                one = one.with(frozen());
            }
            if is_asked {
                one = one.with(asks.clone());
            }
            one = one.with(json!({"metadata": {"name": format!("s{index}"), "uid": format!("uid-s{index}")}}));
            world.snapshot.sets.append(&mut one.snapshot.sets);
        }
        if deployment_is_frozen {
            world = world.deployed(frozen_deployment());
        }
        if deployment_asks {
            world = world.deployed(asks);
        }
        world.policy.margins = OvershootMargins { up, down };
        world.deployed(json!({"spec": {"replicas": replicas, "strategy": {"rollingUpdate": {"maxSurge": surge}}}}))
    }
}

proptest! {
    /// Planning ends; the deployment is marked exactly while one of its sets is; label and condition go together; no
    /// annotation stays.
    #[test]
    fn the_world_settles_and_the_marks_agree(mut world in any_world()) {
        world.settle();
        let names: Vec<String> = world.snapshot.sets.iter().filter_map(|one| one.set.metadata.name.clone()).collect();
        let marks: Vec<_> = names.iter().map(|name| world.marks_of_set(name)).collect();
        prop_assert!(marks.iter().all(|(label, condition)| *label == condition.is_some()));
        prop_assert_eq!(world.marks().0, marks.iter().any(|(label, _)| *label));
        prop_assert_eq!(world.marks().0, world.marks().1.is_some());
        prop_assert!(world.snapshot.sets.iter().all(|one| one.set.metadata.annotations.iter().flatten().count() == 0));
    }

    /// A set within the limit is never frozen, one beyond it is within one period, and an empty one never stays so.
    #[test]
    fn after_one_period_the_numbers_alone_decide(mut world in any_world()) {
        world.settle();
        world.pass(60);
        world.settle();
        let deployment = world.snapshot.deployment.clone().unwrap();
        let surge = match &deployment.spec.strategy.rolling_update.as_ref().unwrap().max_surge {
            Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(surge)) => *surge,
            other => panic!("{other:?}"),
        };
        let most = usize::try_from(deployment.spec.replicas + surge).unwrap() + world.policy.margins.up as usize;
        for one in &world.snapshot.sets {
            let (label, _) = world.marks_of_set(one.set.metadata.name.as_deref().unwrap());
            if one.machines >= most {
                prop_assert!(label, "{} machines >= {most}", one.machines);
            } else if one.machines == 0 {
                prop_assert!(!label);
            }
        }
    }
}
