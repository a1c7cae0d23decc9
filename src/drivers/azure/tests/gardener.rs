//! MachineClasses as Gardener's extension writes them.

use mcm_api::machine::MachineClass;
use mcm_driver::interface::Driver;
use serde::Deserialize;

use super::World;
use serde_json::json;

/// The classes of the fixture, with what the fake needs in place of names that only Gardener's cloud has.
fn classes() -> Vec<MachineClass> {
    let all = serde_yaml_ng::Deserializer::from_str(include_str!("gardener.yaml"));
    all.map(|one| MachineClass::deserialize(one).unwrap()).collect()
}

/// A chart of Gardener writes the field so, and Gardener's driver ignores it: the VM is not in the reservation.
#[tokio::test]
async fn a_reservation_in_another_spelling_is_a_warning() {
    let world = World::new().await;
    let mut class = classes().swap_remove(0);
    let reservation = &mut class.provider_spec["properties"]["capacityReservation"];
    *reservation = json!({"capacityReservationGroup": reservation["capacityReservationGroupID"]});
    let problems = world.driver.validate(&class);
    let warnings: Vec<_> = problems.warnings.iter().map(ToString::to_string).collect();
    assert!(problems.errors.is_empty() && warnings.len() == 1, "{problems:?}");
    assert!(warnings[0].ends_with("unknown field, ignored: did you mean capacityReservationGroupID?"), "{warnings:?}");
}
