//! AWS behind a server whose CA only `AWS_CA_BUNDLE` names.

use std::{fs, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{
    PATIENCE, access,
    fake::{Cloud, Shared, router},
    limits, request,
    target_groups::{ARN, add_group, group},
    with_id,
};
use crate::{AwsCloud, NAME, accounts::Access};
use mcm_driver::{
    Code, Driver,
    cloud::{CaBundle, CloudDriver, RequestReporter},
    guard::DriverGuards,
    testing::{TestCa, code},
};

/// A driver of a cloud with TLS that trusts the bundle, or the CAs of the system.
fn driver(url: &str, bundle: Option<&TestCa>) -> CloudDriver<AwsCloud> {
    let bundle = bundle.map(|ca| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, &ca.pem).unwrap();
        CaBundle::read(file.path()).unwrap()
    });
    let access = Access { bundle, ..access(url, limits(Duration::from_secs(20))) };
    CloudDriver(AwsCloud::new(
        access,
        PATIENCE,
        RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer),
    ))
}

#[tokio::test]
async fn the_certificates_of_a_bundle_are_trusted_in_place_of_those_of_the_system() {
    let cloud: Shared = Arc::new(Mutex::new(Cloud::default()));
    let (ca, other) = (TestCa::new(), TestCa::new());
    let url = ca.serve(router(&cloud), None).await;
    for bundle in [None, Some(&other)] {
        assert_eq!(code(driver(&url, bundle).status(&request("a")).await), Code::Unavailable);
    }
    assert!(cloud.lock().requests.is_empty(), "no server without a trusted certificate gets a request");
    let driver = driver(&url, Some(&ca));
    let vm = driver.create(&request("a")).await.unwrap();
    // Services without a client in the SDK have connections of another library.
    add_group(&cloud, "instance");
    driver.register(&with_id(request("a"), &vm.provider_id), &group(ARN)).await.unwrap();
    assert_eq!(cloud.lock().sent("RegisterTargets").len(), 1);
}
