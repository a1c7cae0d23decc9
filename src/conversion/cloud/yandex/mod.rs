//! VMs of Yandex Cloud. Templates of its infrastructure provider are not converted.

mod ids;

pub use ids::IDS;
