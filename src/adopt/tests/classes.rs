//! Classes that are made from templates of another provider, and templates from classes.

use serde_json::json;

use super::world::World;
use crate::{Kind, MigrationDirection, object::ObjectId};
use mcm_api::labels;

const THERE: MigrationDirection = MigrationDirection::FromOther;
const BACK: MigrationDirection = MigrationDirection::ToOther;

/// A template with all fields of a class, and no class.
fn without_a_class() -> World {
    let mut world = World::of_other(1);
    world.s.objects.remove(&ObjectId::new(Kind::Class, "t"));
    let spec = json!({
        "instanceType": "m5.large", "ami": { "id": "ami-1" }, "iamInstanceProfile": "nodes", "subnet": { "id": "subnet-1" },
        "rootVolume": { "size": 50, "type": "gp3" },
    });
    world.put(Kind::AWS_TEMPLATE, "t", json!({ "spec": { "template": { "spec": spec } } }));
    world
}

impl World {
    /// The network of a cluster of the provider for AWS.
    pub fn network(&mut self) {
        let groups = json!({ "node": { "id": "sg-node" }, "lb": { "id": "sg-lb" } });
        let status = json!({ "networkStatus": { "securityGroups": groups } });
        self.put(Kind::AWS_CLUSTER, "c", json!({ "spec": { "region": "eu-west-1" }, "status": status }));
    }
}

/// Step 3: the class is made from the template, with the credentials that the user names; and back, if need be.
#[test]
fn a_class_is_made_from_the_template_and_a_template_from_the_class() {
    let mut world = without_a_class();
    world.network();
    world.s.credentials = Some("cloud".to_owned());
    world.walk(THERE);
    let class = &world.s.find(Kind::Class, "t").unwrap().value;
    assert_eq!((&class["provider"], &class["providerSpec"]["region"]), (&json!("AWS"), &json!("eu-west-1")));
    assert_eq!(class["providerSpec"]["networkInterfaces"][0]["securityGroupIDs"], json!(["sg-node", "sg-lb"]));
    assert_eq!(class["credentialsSecretRef"], json!({ "name": "cloud", "namespace": "ns" }));

    world.s.objects.remove(&ObjectId::new(Kind::AWS_TEMPLATE, "t"));
    world.walk(BACK);
    let template = world.s.find(Kind::AWS_TEMPLATE, "t").unwrap();
    assert_eq!(template.text("/spec/template/spec/subnet/id"), "subnet-1");
    assert_eq!(template.annotation(labels::MIGRATION), None);
    assert_eq!(world.s.find(Kind::AWS_MACHINE, "d-abc-0").unwrap().text("/spec/subnet/id"), "subnet-1");
}

#[test]
fn a_template_that_cannot_become_a_class_stands_in_the_way_with_its_path() {
    let mut world = without_a_class();
    let failed = world.failed(THERE);
    let expected = "conversion: AWSMachineTemplate t: the region is not known; add the AWSCluster to the objects";
    assert!(failed.iter().any(|text| text.starts_with(expected)), "{failed:#?}");
    assert_eq!(world.plan(THERE).todo.actions.len(), 0);
}

#[test]
fn a_class_without_a_known_provider_needs_a_template_of_that_provider() {
    let mut world = World::of_other(1);
    world.walk(THERE);
    world.s.objects.remove(&ObjectId::new(Kind::AWS_TEMPLATE, "t"));
    let failed = world.failed(BACK);
    assert!(failed.iter().any(|text| text.contains("create the template of the other provider")), "{failed:#?}");
}

/// Two migrations never hold one class: the first that ends would release it.
#[test]
fn a_class_that_another_migration_holds_stands_in_the_way() {
    let mut world = World::of_other(1);
    world.edit(Kind::Class, "t", &json!({ "metadata": { "annotations": { (labels::MIGRATION): "other" } } }));
    let expected = "pause: MachineClass t is held by another migration: complete that first";
    assert_eq!(world.failed(THERE), [expected]);
}

/// The zone of a class for Google Cloud is that of the deployment.
#[test]
fn a_class_for_google_cloud_is_in_the_zone_of_its_machines() {
    let mut world = World::of_other(1);
    for id in [
        ObjectId::new(Kind::Class, "t"),
        ObjectId::new(Kind::AWS_TEMPLATE, "t"),
        ObjectId::new(Kind::AWS_MACHINE, "d-abc-0"),
    ] {
        world.s.objects.remove(&id);
    }
    let spec = json!({ "instanceType": "n2-standard-4", "image": "i", "subnet": "s", "rootDeviceSize": 60 });
    world.put(Kind::GCP_TEMPLATE, "t", json!({ "spec": { "template": { "spec": spec } } }));
    world.put(
        Kind::GCP_CLUSTER,
        "c",
        json!({ "spec": { "region": "eu", "project": "p", "network": { "name": "n" } } }),
    );
    let template = json!({ "failureDomain": "eu-a", "infrastructureRef": { "kind": "GCPMachineTemplate" } });
    for (kind, name) in [(Kind::CapiDeployment, "d"), (Kind::CapiSet, "d-abc")] {
        world.edit(kind, name, &json!({ "spec": { "template": { "spec": template } } }));
    }
    let id = json!({ "spec": { "providerID": "gce://p/eu-a/d-abc-0" } });
    world.put(Kind::GCP_MACHINE, "d-abc-0", id.clone());
    world.edit(Kind::Node, "d-abc-0", &id);
    let reference = json!({ "spec": { "infrastructureRef": { "kind": "GCPMachine" } } });
    [id, reference].iter().for_each(|change| world.edit(Kind::CapiMachine, "d-abc-0", change));
    world.vms.insert("d-abc-0".to_owned(), "gce:///p/eu-a/d-abc-0".to_owned());

    let plan = world.plan(THERE);
    let seen = |check: &str| plan.checks.iter().find(|one| one.check == check).map(|one| one.text.clone());
    assert_eq!(world.failed(THERE), [""; 0]);
    assert_eq!(seen("conversion").as_deref(), Some("MachineClass t is created"));
    assert_eq!(seen("class").as_deref(), Some("t"), "it fits into the failure domain");
    assert_eq!(seen("vm").as_deref(), Some("gce:///p/eu-a/d-abc-0"), "in the form of the driver");
}
