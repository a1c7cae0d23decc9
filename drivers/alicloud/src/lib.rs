//! The driver of Alibaba Cloud.
