"""Explosions in British coal mines a year, 1851 to 1962: boot::coal of R."""

import numpy as np

DISASTERS = """1851*4 1852*5 1853*4 1854 1856*4 1857*3 1858*4 1860*6 1861*3 1862*3 1863*4 1865*2 1866*6 1867*3 1868*3
1869*5 1870*4 1871*5 1872*3 1873 1874*4 1875*4 1876 1877*5 1878*5 1879*3 1880*4 1881*2 1882*5 1883*2 1884*2 1885*3
1886*4 1887*2 1888 1889*3 1890*2 1891*2 1892 1893 1894 1895 1896*3 1899 1901 1902 1905*3 1906 1908*3 1909*2 1910*2 1912
1913 1914 1916 1918 1922*2 1923 1927 1928 1930*2 1931*3 1932*3 1933 1934 1935*2 1936 1937 1938 1939 1940*2 1941*3 1942*3
1946 1947*4 1951 1957 1960 1962"""


def count_disasters():
    """Return the number of each of the 112 years."""
    counts = np.zeros(112)
    for year, number in (entry.split("*") if "*" in entry else (entry, 1) for entry in DISASTERS.split()):
        counts[int(year) - 1851] = float(number)
    return counts
