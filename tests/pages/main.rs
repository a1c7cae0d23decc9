//! The first page of each of the three users, followed literally: the commands of its console blocks run in a shell, with a release
//! on disk. `hack/test-pages` makes the release. No kubelet starts the pods, so the tests run their programs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "the tests of the chart use more of it")]
#[path = "../charts/cluster.rs"]
mod cluster;
mod cluster_api;
mod gardener;
mod newcomer;
mod page;
#[path = "../clusterctl/reading.rs"]
mod reading;
#[allow(dead_code, reason = "the tests with clusterctl use more of it")]
#[path = "../clusterctl/repository.rs"]
mod repository;
mod shell;
#[path = "../charts/shoot.rs"]
mod shoot;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "the tests with clusterctl use more of it")]
#[path = "../clusterctl/world.rs"]
mod world;
