"""Switches for Chromium, wherever it is run without a window."""

_FOR_NOBODY = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess")
"""Popups of an address bar that is not shown, and a renderer for what may come: processes of each window, half of what
a small page costs."""
_AS_PLAYWRIGHT = (
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
"""What Playwright turns off: of two such switches the later one counts."""
LEAN = f"--disable-features={','.join(_FOR_NOBODY + _AS_PLAYWRIGHT)}"
