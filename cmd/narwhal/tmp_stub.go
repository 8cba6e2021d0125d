package main

import "github.com/spf13/cobra"

func demoVerb(*app) *cobra.Command       { return &cobra.Command{Use: "demo"} }
func gateDiffVerb(*app) *cobra.Command   { return &cobra.Command{Use: "diff"} }
func gateReportVerb(*app) *cobra.Command { return &cobra.Command{Use: "report"} }
func bundleVerb(*app) *cobra.Command     { return &cobra.Command{Use: "bundle"} }
