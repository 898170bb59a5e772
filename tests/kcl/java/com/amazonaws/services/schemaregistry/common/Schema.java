package com.amazonaws.services.schemaregistry.common;

/** The KCL's user record has a field of this class, which kclpy-ext leaves out. Nothing here uses it. */
public class Schema {}
